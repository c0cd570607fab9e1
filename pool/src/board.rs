//! What the workers show each other about one pool.
