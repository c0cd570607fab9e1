//! The two queues shared with the kernel, and the one system call that works them.

use std::hint;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr;
use std::time::{Duration, Instant};

use io_uring::{EnterFlags, IoUring, squeue};

/// Orders that fit in the ring before the kernel must be called for more room.
const SUBMISSIONS: u32 = 1024;
/// Completions that fit before the kernel keeps them for us, which it does more slowly.
const COMPLETIONS: u32 = 8192;

pub(super) struct Ring {
    ring: IoUring,
    /// What to call the kernel with: the ring's descriptor, or its index if it is registered.
    handle: libc::c_int,
    /// Part of every call.
    flags: EnterFlags,
}

/// One completion, copied out of the ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completion {
    pub(super) user_data: u64,
    /// A count, a file descriptor, or an error number made negative.
    pub(super) result: i32,
    pub(super) flags: u32,
}

/// `struct io_uring_getevents_arg` of the kernel.
#[repr(C)]
struct GetEvents {
    sigmask: u64,
    sigmask_size: u32,
    min_wait_us: u32,
    timespec: u64,
}

/// `struct __kernel_timespec` of the kernel.
#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

/// `struct io_uring_rsrc_update` of the kernel.
#[repr(C)]
struct RingFdUpdate {
    offset: u32,
    reserved: u32,
    data: u64,
}

const REGISTER_RING_FDS: libc::c_uint = 20;

impl Ring {
    pub(super) fn open() -> io::Result<Self> {
        let ring = build()?;
        let has = ring.params();
        for (there, what) in [
            (has.is_feature_ext_arg(), "a timeout while waiting"),
            (has.is_feature_nodrop(), "completions that are never dropped"),
            (has.is_feature_fast_poll(), "polling by itself"),
            (has.is_feature_skip_cqe_on_success(), "silent success"),
        ] {
            if !there {
                return Err(lacks(what));
            }
        }
        let mut flags = EnterFlags::EXT_ARG;
        if has.is_feature_no_iowait() {
            // An idle pooler is not waiting for a disk, and should not look like it in top.
            flags |= EnterFlags::NO_IOWAIT;
        }
        let mut ring = Self { handle: ring.as_raw_fd(), ring, flags };
        ring.register_itself();
        Ok(ring)
    }

    /// Saves the kernel a look-up in each call. Kernels before 5.18 cannot, and need not.
    fn register_itself(&mut self) {
        let mut update =
            RingFdUpdate { offset: u32::MAX, reserved: 0, data: self.ring.as_raw_fd() as u64 };
        // SAFETY: one update of the layout that the kernel knows, alive during the call.
        let registered = unsafe {
            let update: *mut RingFdUpdate = &mut update;
            libc::syscall(
                libc::SYS_io_uring_register,
                self.ring.as_raw_fd(),
                REGISTER_RING_FDS,
                update,
                1,
            )
        };
        if registered == 1
            && let Ok(index) = libc::c_int::try_from(update.offset)
        {
            self.handle = index;
            self.flags |= EnterFlags::REGISTERED_RING;
        }
    }

    /// Queue `order`. If the queue is full, the kernel is called to take what is in it; false if
    /// it would not, and completions have to be collected first.
    ///
    /// # Safety
    ///
    /// What `order` points to must stay as it is until its completion was collected, or, if its
    /// success is silent, until a call of [`Ring::enter`] that left nothing queued.
    pub(super) unsafe fn push(&mut self, order: &squeue::Entry) -> bool {
        // SAFETY: promised by the caller.
        if unsafe { self.ring.submission().push(order) }.is_ok() {
            return true;
        }
        let called = self.call(0, EnterFlags::empty(), None).is_ok();
        // SAFETY: promised by the caller.
        called && unsafe { self.ring.submission().push(order) }.is_ok()
    }

    /// Orders the kernel has not taken yet.
    pub(super) fn queued(&mut self) -> usize {
        self.ring.submission().len()
    }

    /// Hand over what is queued, and wait for a completion for up to `wait` (`None`: as long as it
    /// takes; zero: just look). Being interrupted, or having waited in vain, is no error.
    pub(super) fn enter(&mut self, wait: Option<Duration>) -> io::Result<()> {
        if wait == Some(Duration::ZERO) {
            let queue = self.ring.submission();
            if queue.is_empty() && !queue.taskrun() && !queue.cq_overflow() {
                return Ok(()); // the kernel has nothing for us, nor we for it
            }
            drop(queue);
            return self.call(0, EnterFlags::GETEVENTS, None);
        }
        self.call(1, EnterFlags::GETEVENTS, wait)
    }

    /// Hand over what is queued, and look out for a completion for so long: whether there is one. The
    /// kernel says in memory that we share that it has something for us, so it need not be asked.
    pub(super) fn look(&mut self, time: Duration) -> io::Result<bool> {
        self.call(0, EnterFlags::GETEVENTS, None)?;
        let since = Instant::now();
        loop {
            if self.ring.submission().taskrun() {
                self.call(0, EnterFlags::GETEVENTS, None)?;
            }
            if !self.ring.completion().is_empty() {
                return Ok(true);
            }
            if since.elapsed() >= time {
                return Ok(false);
            }
            hint::spin_loop();
        }
    }

    /// Take completions out of the ring: all there are, even those that did not fit in it.
    pub(super) fn reap(&mut self, into: &mut Vec<Completion>) {
        loop {
            into.extend(self.ring.completion().map(|entry| Completion {
                user_data: entry.user_data(),
                result: entry.result(),
                flags: entry.flags(),
            }));
            if !self.ring.submission().cq_overflow() {
                return;
            }
            if self.call(0, EnterFlags::GETEVENTS, None).is_err() {
                return;
            }
        }
    }

    /// Whether the kernel holds completions back that [`Ring::reap`] could not get.
    pub(super) fn overflows(&mut self) -> bool {
        self.ring.submission().cq_overflow()
    }

    /// Whether the kernel is 6.15 or newer.
    pub(super) fn is_recent(&self) -> bool {
        self.flags.contains(EnterFlags::NO_IOWAIT)
    }

    pub(super) fn submitter(&self) -> io_uring::Submitter<'_> {
        self.ring.submitter()
    }

    fn call(&mut self, want: u32, flags: EnterFlags, wait: Option<Duration>) -> io::Result<()> {
        let queued = self.ring.submission().len() as u32;
        let timespec = wait.map(|wait| Timespec {
            seconds: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
            nanoseconds: wait.subsec_nanos().into(),
        });
        let timespec = timespec.as_ref().map_or(ptr::null(), ptr::from_ref);
        let arg =
            GetEvents { sigmask: 0, sigmask_size: 0, min_wait_us: 0, timespec: timespec as u64 };
        let flags = (self.flags | flags).bits();
        // SAFETY: `arg` and the timespec it points to are alive during the call; what the queued
        // orders point to is promised by those who called `push`.
        let taken = unsafe {
            let arg: *const GetEvents = &arg;
            let size = size_of::<GetEvents>();
            libc::syscall(libc::SYS_io_uring_enter, self.handle, queued, want, flags, arg, size)
        };
        if taken >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            // ETIME: waited in vain. EBUSY: completions must be collected first, which is next.
            Some(libc::ETIME | libc::EINTR | libc::EBUSY) => Ok(()),
            _ => Err(error),
        }
    }
}

/// A ring with as much of what makes it fast as this kernel has.
fn build() -> io::Result<IoUring> {
    let mut refused = None;
    for step in 0..4 {
        let mut builder = IoUring::builder();
        builder.setup_clamp().setup_submit_all().setup_cqsize(COMPLETIONS);
        if step <= 2 {
            builder.setup_coop_taskrun().setup_taskrun_flag(); // 5.19
        }
        if step <= 1 {
            builder.setup_single_issuer().setup_defer_taskrun(); // 6.1
        }
        if step == 0 {
            builder.setup_no_sqarray(); // 6.6
        }
        match builder.build(SUBMISSIONS) {
            Ok(ring) => return Ok(ring),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => refused = Some(error),
            Err(error) => {
                let why = match error.raw_os_error() {
                    Some(libc::ENOSYS) => "this kernel has none",
                    Some(libc::EPERM | libc::EACCES) => {
                        "forbidden (by kernel.io_uring_disabled, or a container's seccomp profile)"
                    }
                    _ => return Err(error),
                };
                return Err(io::Error::new(error.kind(), format!("io_uring: {why}")));
            }
        }
    }
    Err(refused.unwrap_or_else(|| lacks("a ring at all")))
}

/// The kernel has io_uring, but not all we need of it.
pub(super) fn lacks(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, format!("io_uring: this kernel's lacks {what}"))
}
