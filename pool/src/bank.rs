//! Who owns how many server slots, over all workers.
