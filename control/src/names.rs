//! Host names: looked for in /etc/hosts, then asked of the name servers of resolv.conf.

use std::cmp::Reverse;
use std::fs::{self, File};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use hickory_resolver::config::{LookupIpStrategy, ResolveHosts};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::rdata::SRV;
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use hickory_resolver::system_conf::parse_resolv_conf;
use hickory_resolver::{Hosts, Resolver, TokioResolver};
use tokio::sync::{Semaphore, mpsc, oneshot};

/// Why a host has no address.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Nowhere {
    /// Who must know says that there is none.
    NoSuchHost,
    /// Nobody who must know could be asked.
    Unanswered(String),
}

/// Where names are read up.
#[derive(Clone, Debug)]
pub struct Sources {
    pub resolv_conf: PathBuf,
    pub hosts: PathBuf,
}

impl Default for Sources {
    fn default() -> Self {
        Self { resolv_conf: "/etc/resolv.conf".into(), hosts: "/etc/hosts".into() }
    }
}

pub(crate) type Reply<T> = Box<dyn FnOnce(T) + Send>;

/// What is asked.
pub(crate) enum Question {
    Addresses {
        host: String,
        reply: Reply<Result<Vec<IpAddr>, Nowhere>>,
    },
    /// The serial number of a zone.
    Serial {
        zone: String,
        reply: Reply<Option<u32>>,
    },
    /// Where a service is: SRV records, the preferred one first.
    Services {
        name: String,
        reply: Reply<Result<Vec<Service>, String>>,
    },
}

/// What an SRV record says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Service {
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// The thread, as long as this is not dropped.
pub(crate) struct Names {
    /// Nothing is ever sent: when it is dropped, the thread goes home.
    open: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Questions under way at once; more wait their turn.
const AT_ONCE: usize = 64;

impl Names {
    /// Starts the thread; `line` is how many questions may wait.
    pub(crate) fn start(
        sources: Sources,
        line: usize,
    ) -> io::Result<(Self, mpsc::Sender<Question>)> {
        let (ask, questions) = mpsc::channel(line.max(1));
        let (open, closed) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let serve = move || {
            runtime.block_on(async {
                tokio::select! {
                    biased;
                    _ = closed => {}
                    () = serve(Library::new(sources), questions) => {}
                }
            });
            // What is under way is dropped with the runtime: nobody waits for a dead name server.
        };
        let thread = thread::Builder::new().name("names".into()).spawn(serve)?;
        Ok((Self { open: Some(open), thread: Some(thread) }, ask))
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        drop(self.open.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn serve(mut library: Library, mut questions: mpsc::Receiver<Question>) {
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    while let Some(question) = questions.recv().await {
        let Ok(turn) = turns.clone().acquire_owned().await else { return };
        let book = library.book();
        tokio::spawn(async move {
            match question {
                Question::Addresses { host, reply } => reply(book.addresses(&host).await),
                Question::Serial { zone, reply } => reply(book.serial(&zone).await),
                Question::Services { name, reply } => reply(book.services(&name).await),
            }
            drop(turn);
        });
    }
}

/// The files, and what they said when they were last read.
struct Library {
    sources: Sources,
    read: Option<([Option<Edition>; 2], Arc<Book>)>,
}

/// A file that was changed has another one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Edition {
    inode: u64,
    changed: (i64, i64),
    length: u64,
}

impl Edition {
    fn of(path: &Path) -> Option<Self> {
        let file = fs::metadata(path).ok()?;
        let changed = (file.mtime(), file.mtime_nsec());
        Some(Self { inode: file.ino(), changed, length: file.len() })
    }
}

impl Library {
    fn new(sources: Sources) -> Self {
        Self { sources, read: None }
    }

    /// What the files say now: a laptop that changes its network, or a container that is joined to
    /// one, has its files rewritten under way.
    fn book(&mut self) -> Arc<Book> {
        let editions = [&self.sources.resolv_conf, &self.sources.hosts].map(|p| Edition::of(p));
        match &self.read {
            Some((read, book)) if *read == editions => book.clone(),
            _ => {
                let book = Arc::new(Book::read(&self.sources));
                self.read = Some((editions, book.clone()));
                book
            }
        }
    }
}

/// Where a name can be looked up.
struct Book {
    hosts: Hosts,
    /// Or why there is none.
    servers: Result<TokioResolver, String>,
}

impl Book {
    fn read(sources: &Sources) -> Self {
        let mut hosts = Hosts::default();
        if let Ok(file) = File::open(&sources.hosts) {
            // What could be read of it counts.
            let _ = hosts.read_hosts_conf(file);
        }
        let servers = servers(&sources.resolv_conf)
            .map_err(|error| format!("{}: {error}", sources.resolv_conf.display()));
        Self { hosts, servers }
    }

    async fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, Nowhere> {
        if let Ok(ip) = host.parse() {
            return Ok(vec![ip]);
        }
        // Names of containers have underscores, which no host may have.
        let name = Name::from_str_relaxed(host).map_err(|_| Nowhere::NoSuchHost)?;
        let listed = self.listed(&name);
        if !listed.is_empty() {
            return Ok(usable(listed));
        }
        let servers = self.servers.as_ref().map_err(|error| Nowhere::Unanswered(error.clone()))?;
        match servers.lookup_ip(name).await {
            Ok(found) => {
                let found = usable(distinct(found.iter()));
                if found.is_empty() { Err(Nowhere::NoSuchHost) } else { Ok(found) }
            }
            Err(error) if error.is_no_records_found() => Err(Nowhere::NoSuchHost),
            Err(error) => Err(Nowhere::Unanswered(error.to_string())),
        }
    }

    /// Addresses in /etc/hosts: whoever is listed there is asked for nowhere else, not even for an
    /// address of the other family.
    fn listed(&self, name: &Name) -> Vec<IpAddr> {
        let mut name = name.clone();
        name.set_fqdn(true);
        let of = |kind| {
            let query = Query::query(name.clone(), kind);
            let found = self.hosts.lookup_static_host(&query);
            found.into_iter().flat_map(|found| {
                found
                    .answers()
                    .iter()
                    .filter_map(|record| record.data.ip_addr())
                    .collect::<Vec<_>>()
            })
        };
        distinct(of(RecordType::A).chain(of(RecordType::AAAA)))
    }

    /// None where nobody knows of any.
    async fn services(&self, name: &str) -> Result<Vec<Service>, String> {
        let mut name = Name::from_str_relaxed(name).map_err(|error| error.to_string())?;
        name.set_fqdn(true);
        let found =
            self.servers.as_ref().map_err(Clone::clone)?.lookup(name, RecordType::SRV).await;
        match found {
            Ok(found) => {
                let records = found.answers().iter().filter_map(|record| match &record.data {
                    RData::SRV(found) => Some(found.clone()),
                    _ => None,
                });
                Ok(in_order(records.collect()))
            }
            Err(error) if error.is_no_records_found() => Ok(Vec::new()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The serial number of the zone that `zone` is, or is in.
    async fn serial(&self, zone: &str) -> Option<u32> {
        let mut name = Name::from_str_relaxed(zone).ok()?;
        name.set_fqdn(true);
        match self.servers.as_ref().ok()?.lookup(name, RecordType::SOA).await {
            Ok(found) => found.answers().iter().find_map(|record| match &record.data {
                RData::SOA(soa) => Some(soa.serial),
                _ => None,
            }),
            // A name inside a zone has no SOA of its own; the answer that says so brings the zone's.
            Err(error) => error.into_soa().map(|record| record.data.serial),
        }
    }
}

/// The lowest priority first, and of equal ones the greatest weight.
fn in_order(mut found: Vec<SRV>) -> Vec<Service> {
    found.sort_by_key(|service| (service.priority, Reverse(service.weight)));
    let service = |found: SRV| Service {
        host: found.target.to_ascii().trim_end_matches('.').to_owned(),
        port: found.port,
    };
    // A target that is the root says that there is no such service.
    found.into_iter().filter(|found| !found.target.is_root()).map(service).collect()
}

/// The name servers that `path` lists.
fn servers(path: &Path) -> Result<TokioResolver, NetError> {
    let (config, mut options) = parse_resolv_conf(fs::read(path)?)?;
    // Addresses are kept by whoever asks, for as long as the settings say.
    options.cache_size = 0;
    options.use_hosts_file = ResolveHosts::Never;
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    options.try_tcp_on_error = true;
    let mut builder = Resolver::builder_with_config(config, TokioRuntimeProvider::default());
    *builder.options_mut() = options;
    builder.build()
}

fn distinct(addresses: impl Iterator<Item = IpAddr>) -> Vec<IpAddr> {
    let mut all = Vec::new();
    for address in addresses {
        if !all.contains(&address) {
            all.push(address);
        }
    }
    all
}

/// Without those to which no route leads, as a machine without IPv6 has none to an AAAA; all of
/// them if none is left.
fn usable(addresses: Vec<IpAddr>) -> Vec<IpAddr> {
    let reachable: Vec<IpAddr> = addresses.iter().copied().filter(has_route).collect();
    if reachable.is_empty() { addresses } else { reachable }
}

/// To connect a UDP socket sends nothing: the kernel only chooses the way.
fn has_route(address: &IpAddr) -> bool {
    let any: SocketAddr = match address {
        IpAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        IpAddr::V6(_) => ([0_u16; 8], 0).into(),
    };
    UdpSocket::bind(any).and_then(|socket| socket.connect((*address, 53))).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library(hosts: &str, resolv_conf: &str) -> (tempfile::TempDir, Library) {
        let folder = tempfile::tempdir().expect("a folder");
        let sources = Sources {
            resolv_conf: folder.path().join("resolv.conf"),
            hosts: folder.path().join("hosts"),
        };
        fs::write(&sources.hosts, hosts).expect("written");
        fs::write(&sources.resolv_conf, resolv_conf).expect("written");
        (folder, Library::new(sources))
    }

    fn ask(library: &mut Library, host: &str) -> Result<Vec<IpAddr>, Nowhere> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(library.book().addresses(host))
    }

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().expect("an address")).collect()
    }

    #[test]
    fn services_stand_in_the_order_in_which_they_are_to_be_tried() {
        let srv = |priority, weight, port, target| {
            SRV::new(priority, weight, port, Name::from_ascii(target).expect("a name"))
        };
        let found = vec![
            srv(20, 90, 1, "late.example.net."),
            srv(10, 5, 2, "light.example.net."),
            srv(0, 0, 3, "."),
            srv(10, 60, 636, "heavy.example.net."),
        ];
        let service = |host: &str, port| Service { host: host.to_owned(), port };
        let wanted = [
            service("heavy.example.net", 636),
            service("light.example.net", 2),
            service("late.example.net", 1),
        ];
        assert_eq!(in_order(found), wanted);
    }

    /// The name server is a dead one: had it been asked, this would take seconds and fail.
    #[test]
    fn etc_hosts_comes_first_and_is_read_again_when_it_changes() {
        let hosts =
            "127.0.0.1 db db.example other\n127.0.0.2 db # twice\nnonsense\n::1 six my_db\n";
        let (folder, mut library) = library(hosts, "nameserver 127.255.255.254\n");
        assert_eq!(ask(&mut library, "db"), Ok(ips(&["127.0.0.1", "127.0.0.2"])));
        assert_eq!(ask(&mut library, "DB.Example"), Ok(ips(&["127.0.0.1"])));
        assert_eq!(ask(&mut library, "db.example."), Ok(ips(&["127.0.0.1"])));
        assert_eq!(ask(&mut library, "my_db"), Ok(ips(&["::1"])));
        fs::write(folder.path().join("hosts"), "127.0.0.9 db\n").expect("written");
        assert_eq!(ask(&mut library, "db"), Ok(ips(&["127.0.0.9"])));
    }

    #[test]
    fn an_address_is_its_own_answer() {
        let (_folder, mut library) = library("", "");
        assert_eq!(ask(&mut library, "10.1.2.3"), Ok(ips(&["10.1.2.3"])));
        assert_eq!(ask(&mut library, "::1"), Ok(ips(&["::1"])));
    }

    #[test]
    fn nobody_to_ask_is_not_the_same_as_no_such_host() {
        let (_folder, mut library) = library("", "search example\n");
        let error = ask(&mut library, "db").expect_err("there is no name server");
        let Nowhere::Unanswered(why) = error else { panic!("{error:?}") };
        assert!(why.contains("resolv.conf: "), "{why}");
        assert_eq!(ask(&mut library, "two..dots"), Err(Nowhere::NoSuchHost));
    }
}
