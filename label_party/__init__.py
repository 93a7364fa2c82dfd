"""The party that owns the labels and the top model; a gRPC server."""
