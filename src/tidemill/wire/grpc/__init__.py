"""The gRPC services: their schema and the code generated from it."""
