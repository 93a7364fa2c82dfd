"""Generated from proto/cutlayer/v1 by scripts/stubs; do not edit."""
