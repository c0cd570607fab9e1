//! A name server whose answers a test chooses.

use std::collections::BTreeMap;
use std::net::{IpAddr, UdpSocket};
use std::str::FromStr as _;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::rdata::{CNAME, SOA, SRV};
use hickory_proto::rr::{Name, RData, Record, RecordType};

/// A thread that answers on port 53 of a loopback address of its own, which only root may do.
pub struct NameServer {
    ip: IpAddr,
    book: Arc<Mutex<Book>>,
    ending: Arc<AtomicBool>,
}

#[derive(Default)]
struct Book {
    hosts: BTreeMap<String, Means>,
    /// By name of the zone.
    serials: BTreeMap<String, u32>,
    /// Every name that was asked for, with the kind of record.
    asked: Vec<(String, RecordType)>,
    mood: Mood,
}

#[derive(Clone)]
enum Means {
    Addresses(Vec<IpAddr>),
    Alias(String),
    /// Priority, port and host.
    Services(Vec<(u16, u16, String)>),
}

/// How it answers.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Mood {
    #[default]
    Well,
    /// Not at all.
    Mute,
    /// With SERVFAIL.
    Ill,
}

impl NameServer {
    /// `None` where we are not root: there is no other port in a resolv.conf.
    ///
    /// # Panics
    /// When the address is taken.
    #[must_use]
    pub fn start() -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(1);
        if !rustix::process::getuid().is_root() {
            println!("not root: no name server");
            return None;
        }
        let [.., high, low] = std::process::id().to_be_bytes();
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let ip = IpAddr::from([127, 50 + u8::try_from(count).expect("few"), high, low.max(1)]);
        let socket = UdpSocket::bind((ip, 53)).expect("port 53 of our own address");
        socket.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
        let book = Arc::<Mutex<Book>>::default();
        let ending = Arc::new(AtomicBool::new(false));
        let (thread_book, end) = (book.clone(), ending.clone());
        std::thread::spawn(move || {
            let mut packet = [0; 4096];
            while !end.load(Ordering::SeqCst) {
                let Ok((length, from)) = socket.recv_from(&mut packet) else { continue };
                let Ok(question) = Message::from_vec(&packet[..length]) else { continue };
                let answer = thread_book.lock().expect("no panic").answer(&question);
                if let Some(answer) = answer {
                    let _gone = socket.send_to(&answer.to_vec().expect("it fits"), from);
                }
            }
        });
        Some(Self { ip, book, ending })
    }

    /// The lines of a resolv.conf that lead here, in a file.
    ///
    /// # Panics
    /// When it cannot be written.
    #[must_use]
    pub fn resolv_conf(&self, more: &str) -> String {
        let path = crate::place::folder("dns").join("resolv.conf");
        crate::place::write(&path, &format!("nameserver {}\noptions timeout:1\n{more}", self.ip));
        path.display().to_string()
    }

    pub fn host(&self, name: &str, addresses: &[&str]) {
        let addresses = addresses.iter().map(|ip| ip.parse().expect("an address")).collect();
        self.change(|book| _ = book.hosts.insert(name.into(), Means::Addresses(addresses)));
    }

    pub fn alias(&self, name: &str, of: &str) {
        self.change(|book| _ = book.hosts.insert(name.into(), Means::Alias(of.into())));
    }

    /// Priority, port and host of each.
    pub fn services(&self, name: &str, services: &[(u16, u16, &str)]) {
        let services = services.iter().map(|(order, port, host)| (*order, *port, (*host).into()));
        let means = Means::Services(services.collect());
        self.change(|book| _ = book.hosts.insert(name.into(), means));
    }

    pub fn forget(&self, name: &str) {
        self.change(|book| _ = book.hosts.remove(name));
    }

    pub fn serial(&self, zone: &str, serial: u32) {
        self.change(|book| _ = book.serials.insert(zone.into(), serial));
    }

    pub fn mood(&self, mood: Mood) {
        self.change(|book| book.mood = mood);
    }

    /// How often it was asked for the IPv4 addresses of `name`.
    #[must_use]
    pub fn asked(&self, name: &str) -> usize {
        let mut count = 0;
        self.change(|book| {
            let of = |asked: &&(String, RecordType)| asked.0 == name && asked.1 == RecordType::A;
            count = book.asked.iter().filter(of).count();
        });
        count
    }

    fn change(&self, change: impl FnOnce(&mut Book)) {
        change(&mut self.book.lock().expect("no panic"));
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::SeqCst);
    }
}

/// The longest that can be said, which nobody must trip over.
const TTL: u32 = u32::MAX;

impl Book {
    fn answer(&mut self, question: &Message) -> Option<Message> {
        let query = question.queries.first()?;
        let mut name = query.name().to_string().trim_end_matches('.').to_lowercase();
        let kind = query.query_type();
        self.asked.push((name.clone(), kind));
        let mut answer = Message::response(question.metadata.id, question.metadata.op_code);
        answer.metadata.recursion_available = true;
        answer.add_query(query.clone());
        match self.mood {
            Mood::Well => {}
            Mood::Mute => return None,
            Mood::Ill => {
                answer.metadata.response_code = ResponseCode::ServFail;
                return Some(answer);
            }
        }
        if kind == RecordType::SOA && self.serials.contains_key(&name) {
            answer.add_answer(self.soa(&name));
            return Some(answer);
        }
        while let Some(Means::Alias(of)) = self.hosts.get(&name) {
            answer.add_answer(record(&name, RData::CNAME(CNAME(parsed(of)))));
            name.clone_from(of);
        }
        match self.hosts.get(&name) {
            Some(Means::Addresses(addresses)) => {
                let data = addresses.iter().map(|ip| RData::from(*ip));
                let data = data.filter(|data| data.record_type() == kind);
                answer.add_answers(data.map(|data| record(&name, data)));
            }
            Some(Means::Services(services)) if kind == RecordType::SRV => {
                let srv = |(order, port, host): &(u16, u16, String)| {
                    RData::SRV(SRV::new(*order, 0, *port, parsed(host)))
                };
                answer.add_answers(services.iter().map(|service| record(&name, srv(service))));
            }
            _ => answer.metadata.response_code = ResponseCode::NXDomain,
        }
        // The zone that the name is in says that there is nothing more.
        let zone = self.serials.keys().find(|zone| name.ends_with(zone.as_str()));
        if let (true, Some(zone)) = (answer.answers.is_empty(), zone) {
            answer.add_authority(self.soa(zone));
        }
        Some(answer)
    }

    fn soa(&self, zone: &str) -> Record {
        let serial = self.serials[zone];
        let soa = SOA::new(parsed("ns.test"), parsed("root.test"), serial, 60, 60, 60, 60);
        record(zone, RData::SOA(soa))
    }
}

fn record(name: &str, data: RData) -> Record {
    Record::from_rdata(parsed(name), TTL, data)
}

fn parsed(name: &str) -> Name {
    Name::from_str(&format!("{name}.")).expect("a name")
}
