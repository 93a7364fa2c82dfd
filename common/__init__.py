"""What every party shares: configuration, data, protocol, randomness, files. Imports no party."""
