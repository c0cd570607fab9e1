//! What the workers show each other about one pool.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// One pool's notices. Each worker writes its own post; only `coming` is written by others.
#[derive(Debug)]
pub struct Board {
    posts: Box<[Post]>,
}

#[derive(Debug)]
#[repr(align(128))]
struct Post {
    oldest: AtomicU64,
    waiting: AtomicU32,
    coming: AtomicU32,
}

impl Board {
    /// A board for `workers` workers.
    #[must_use]
    pub fn new(workers: usize) -> Self {
        let post = |_| Post {
            oldest: AtomicU64::new(u64::MAX),
            waiting: AtomicU32::new(0),
            coming: AtomicU32::new(0),
        };
        Self { posts: (0..workers).map(post).collect() }
    }

    /// How many clients wait on all workers together.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        self.posts.iter().map(|post| post.waiting.load(Ordering::Relaxed)).sum()
    }

    /// How many servers of this pool are open or opening, over all workers.
    #[must_use]
    pub fn open(&self) -> u32 {
        todo!()
    }
}
