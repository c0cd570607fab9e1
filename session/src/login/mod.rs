//! Logging in: a client to us, and us to a server.
