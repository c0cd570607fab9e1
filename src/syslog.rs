//! The system's logger: one datagram per line, as `syslog(3)` sends them.
//!
//! The crate for it stamps lines in UTC where there are several threads, and rsyslog believes the stamp.

use std::io;
use std::os::unix::net::UnixDatagram;

use config::Settings;
use jiff::Zoned;

use crate::lines::Lines;
use crate::outlet::Write;

/// Where the system's logger listens.
const PATH: &str = "/dev/log";

/// As the settings name them.
const FACILITIES: &[(&str, u8)] = &[
    ("user", 1),
    ("daemon", 3),
    ("auth", 4),
    ("authpriv", 10),
    ("local0", 16),
    ("local1", 17),
    ("local2", 18),
    ("local3", 19),
    ("local4", 20),
    ("local5", 21),
    ("local6", 22),
    ("local7", 23),
];

/// How lines are labelled.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Label {
    ident: String,
    facility: u8,
}

impl Label {
    /// Nothing where syslog is off. A facility that nobody knows is told, and `daemon` taken.
    pub(crate) fn of(settings: &Settings, told: &mut Vec<String>) -> Option<Self> {
        if !settings.syslog {
            return None;
        }
        told.extend(flaw(settings));
        let facility = facility(settings).unwrap_or(3);
        Some(Self { ident: settings.syslog_ident.clone(), facility })
    }
}

fn facility(settings: &Settings) -> Option<u8> {
    let wanted = settings.syslog_facility.as_str();
    let found = FACILITIES.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
    found.map(|(_, number)| *number)
}

/// Whether the facility is none.
pub(crate) fn flaw(settings: &Settings) -> Option<String> {
    let known: Vec<_> = FACILITIES.iter().map(|(name, _)| *name).collect();
    let (wanted, known) = (&settings.syslog_facility, known.join(", "));
    let is_bad = settings.syslog && facility(settings).is_none();
    is_bad.then(|| format!("syslog_facility {wanted} is none of {known}: daemon is used"))
}

/// The way to the logger. It is dialled when something is to be said, and anew after the logger was restarted.
pub(crate) struct Syslog {
    label: Label,
    pid: u32,
    socket: Option<UnixDatagram>,
}

impl Syslog {
    pub(crate) fn new(label: Label) -> Self {
        Self { label, pid: std::process::id(), socket: None }
    }

    fn send(&mut self, datagram: &[u8]) -> io::Result<()> {
        if let Some(socket) = &self.socket
            && socket.send(datagram).is_ok()
        {
            return Ok(());
        }
        // A logger that was restarted has a new socket under the old name.
        self.socket = None;
        let socket = UnixDatagram::unbound()?;
        socket.connect(PATH)?;
        socket.send(datagram)?;
        self.socket = Some(socket);
        Ok(())
    }
}

impl Write for Syslog {
    fn write(&mut self, lines: &Lines) -> io::Result<()> {
        let time = Zoned::now().strftime("%b %e %H:%M:%S").to_string();
        for (severity, said) in lines.said() {
            let priority = self.label.facility * 8 + severity;
            let datagram = format!("<{priority}>{time} {}[{}]: {said}", self.label.ident, self.pid);
            self.send(datagram.as_bytes())?;
        }
        Ok(())
    }
}
