//! Received bytes, owned by whoever holds them.

/// A run of received bytes.
///
/// It may lie in memory that the driver lends to the kernel (io_uring's provided buffers): dropping
/// it gives that memory back. Pass it on whole with [`crate::Driver::send`], and nothing is copied.
#[derive(Debug)]
pub struct Buf {
    inner: Inner,
}

#[derive(Debug)]
enum Inner {
    Heap(Vec<u8>),
}

impl From<Vec<u8>> for Buf {
    fn from(bytes: Vec<u8>) -> Self {
        Self { inner: Inner::Heap(bytes) }
    }
}

impl std::ops::Deref for Buf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.inner {
            Inner::Heap(bytes) => bytes,
        }
    }
}
