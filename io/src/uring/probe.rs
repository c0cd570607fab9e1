//! Whether this kernel does what the io_uring driver relies on.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use io_uring::types::Fd;
use io_uring::{cqueue, opcode, squeue};
use socket2::SockRef;

use super::ring::{Completion, Ring, lacks};
use super::{GROUP, SEND, register};
use crate::lender::Lender;

/// How long the kernel may take for what it does at once.
const PATIENCE: Duration = Duration::from_secs(1);

/// Try it on a pair of sockets: kernels differ, and so do the distributions' patches to them.
pub(super) fn probe() -> io::Result<()> {
    let lender = Lender::with_ring();
    let bytes = vec![0_u8; 4 << 20];
    let tried = try_it(&lender, &bytes);
    if tried.is_err() {
        // What is not as we thought may still be at work on these.
        std::mem::forget((lender, bytes));
    }
    tried
}

fn try_it(lender: &Lender, bytes: &[u8]) -> io::Result<()> {
    let mut ring = Ring::open()?;
    register(&ring, lender)?;
    let (near, far) = UnixStream::pair()?;
    SockRef::from(&near).set_send_buffer_size(8192)?;

    let small = opcode::Send::new(Fd(near.as_raw_fd()), bytes.as_ptr(), 1)
        .flags(SEND | libc::MSG_DONTWAIT)
        .build()
        .flags(squeue::Flags::SKIP_SUCCESS)
        .user_data(1);
    let large = opcode::Send::new(Fd(near.as_raw_fd()), bytes.as_ptr(), bytes.len() as u32)
        .flags(SEND | libc::MSG_DONTWAIT)
        .build()
        .flags(squeue::Flags::SKIP_SUCCESS)
        .user_data(2);
    let receive = opcode::RecvMulti::new(Fd(far.as_raw_fd()), GROUP).build().user_data(3);

    let told = run(&mut ring, &[small])?;
    if !told.is_empty() {
        return Err(lacks("silent sends"));
    }
    let told = run(&mut ring, &[large])?;
    let partly = |c: &Completion| {
        c.user_data == 2
            && (c.result == -libc::EAGAIN || (0..bytes.len() as i32).contains(&c.result))
    };
    if !told.iter().any(partly) {
        return Err(lacks("a word about sends cut short"));
    }
    let told = run(&mut ring, &[receive])?;
    let goes_on = |c: &Completion| {
        c.user_data == 3
            && c.result > 0
            && cqueue::more(c.flags)
            && cqueue::buffer_select(c.flags).is_some()
    };
    if !told.iter().any(goes_on) {
        return Err(lacks("receiving many times"));
    }
    // End of file ends the receive, so nothing is in flight when the buffers go.
    drop(near);
    let mut told = Vec::new();
    while !told.iter().any(|c: &Completion| c.user_data == 3 && !cqueue::more(c.flags)) {
        ring.enter(Some(PATIENCE))?;
        let before = told.len();
        ring.reap(&mut told);
        if told.len() == before {
            return Err(lacks("an end to receiving"));
        }
    }
    Ok(())
}

fn run(ring: &mut Ring, orders: &[squeue::Entry]) -> io::Result<Vec<Completion>> {
    for order in orders {
        // SAFETY: `probe` keeps the buffers until nothing is in flight, or for ever.
        if !unsafe { ring.push(order) } {
            return Err(lacks("room for an order"));
        }
    }
    ring.enter(Some(Duration::ZERO))?;
    let mut told = Vec::new();
    ring.reap(&mut told);
    Ok(told)
}
