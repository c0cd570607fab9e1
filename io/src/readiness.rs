//! The driver over readiness.

use std::io;
use std::time::Duration;

use crate::{Address, Buf, Conn, Done, Driver, Listener, Socket, Tuning, Waker};

pub struct Readiness {}

impl Readiness {
    pub fn open() -> io::Result<Self> {
        todo!()
    }
}

impl Driver for Readiness {
    type Socket = Socket;
    fn adopt(&mut self, _: Socket) -> Conn {
        todo!()
    }
    fn connect(&mut self, _: &Address) -> Conn {
        todo!()
    }
    fn send(&mut self, _: Conn, _: Buf) {
        todo!()
    }
    fn write(&mut self, _: Conn, _: &[u8]) {
        todo!()
    }
    fn unsent(&self, _: Conn) -> usize {
        todo!()
    }
    fn pause(&mut self, _: Conn) {
        todo!()
    }
    fn resume(&mut self, _: Conn) {
        todo!()
    }
    fn finish(&mut self, _: Conn) {
        todo!()
    }
    fn abort(&mut self, _: Conn) {
        todo!()
    }
    fn detach(&mut self, _: Conn) {
        todo!()
    }
    fn listen(&mut self, _: Socket) -> Listener {
        todo!()
    }
    fn listen_again(&mut self, _: Listener) {
        todo!()
    }
    fn unlisten(&mut self, _: Listener) {
        todo!()
    }
    fn turn(&mut self, _: Option<Duration>, _: &mut Vec<Done<Socket>>) {
        todo!()
    }
    fn waker(&self) -> Waker {
        todo!()
    }
    fn tune(&mut self, _: &Tuning) {
        todo!()
    }
}
