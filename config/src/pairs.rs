//! The `key=value` pairs behind a name.
