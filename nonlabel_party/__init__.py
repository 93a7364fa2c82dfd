"""A party that owns features and a bottom model; a gRPC client."""
