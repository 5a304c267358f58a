"""The web gallery over the store. Nothing is built here yet."""
