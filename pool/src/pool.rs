//! One worker's part of one pool.
