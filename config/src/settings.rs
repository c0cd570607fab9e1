//! Every setting of the `[pgbouncer]` section, in one table.

use std::marker::PhantomData;
use std::time::Duration;

use crate::session_state::{StatePolicy, States};
use crate::value::{
    AuthDb, Comments, Flag, Int, Items, Kind, MOST, MaybeText, OneOf, Port, Prose, Seconds, Sql,
    Text, before_comment,
};
use crate::{AuthType, IoDriver, List, PoolMode, SslMode};

/// One row of [`TABLE`].
#[derive(Debug)]
pub struct Row {
    pub name: &'static str,
    /// As it would be written in the file; `None` is NULL.
    pub default: Option<&'static str>,
    pub reloadable: Reloadable,
    pub effect: Effect,
    /// What it does, with its unit.
    pub doc: &'static str,
    expects: fn() -> String,
    comments: fn() -> Comments,
    set: fn(&mut Settings, &str) -> bool,
    copy: fn(&mut Settings, &Settings),
    show: fn(&Settings) -> Option<String>,
}

/// Whether RELOAD and SET can change a setting.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reloadable {
    Yes,
    /// Only a restart can.
    No,
}

/// Whether a setting does what it says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Effect {
    Now,
    /// It is read and checked, and the reader is told that nothing comes of it yet.
    NotYet(&'static str),
    /// It is accepted because existing files have it, and means nothing here.
    Never(&'static str),
}

/// One row of SHOW CONFIG. `None` is NULL.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Shown {
    pub key: &'static str,
    pub value: Option<String>,
    pub default: Option<&'static str>,
    pub changeable: bool,
}

/// What one assignment met with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Set {
    Done,
    /// Done, without the comment that stood behind the value.
    WithoutComment,
    /// Done, with something in it that looks like a comment.
    WithComment,
}

macro_rules! settings {
    (@default NULL) => { None };
    (@default $default:literal) => { Some($default) };
    ($($name:ident: $type:ty, $kind:expr, $default:tt, $reloadable:ident, $effect:expr,
        $doc:literal;)*) => {
        /// The values of all settings. Times are durations; a time of zero is what the setting
        /// says it is, mostly "never".
        #[derive(Clone, Debug, Eq, PartialEq)]
        // The lines are written for people who read the manual: their brackets are sections.
        #[allow(rustdoc::broken_intra_doc_links)]
        pub struct Settings {
            $(#[doc = $doc] pub $name: $type,)*
        }

        impl Settings {
            /// Nothing set at all: what every field is before the defaults are read into it.
            fn blank() -> Self {
                Self { $($name: Blank::blank(),)* }
            }
        }

        /// All settings in the order of SHOW CONFIG.
        pub const TABLE: &[Row] = &[$(Row {
            name: stringify!($name),
            default: settings!(@default $default),
            reloadable: Reloadable::$reloadable,
            effect: $effect,
            doc: $doc,
            expects: || $kind.expects(),
            comments: || $kind.comments(),
            set: |settings, text| match $kind.read(text) {
                Some(value) => {
                    settings.$name = value;
                    true
                }
                None => false,
            },
            copy: |settings, from| settings.$name.clone_from(&from.$name),
            show: |settings| $kind.show(&settings.$name),
        },)*];
    };
}

use Effect::{Never, Now};

const ANY: Int = Int(0, MOST);
const POSITIVE: Int = Int(1, MOST);
const POOL_MODE: OneOf<PoolMode> = OneOf(PhantomData);
const AUTH_TYPE: OneOf<AuthType> = OneOf(PhantomData);
const SSL_MODE: OneOf<SslMode> = OneOf(PhantomData);
const IO_DRIVER: OneOf<IoDriver> = OneOf(PhantomData);

const BUFFERS: Effect = Never("buffers come from a budget of their own");
const WINDOWS: Effect = Never("it names a Windows service");

settings! {
    admin_users: List, Items, "", Yes, Now,
        "Users who may give every command on the console.";
    application_name_add_host: bool, Flag, "0", Yes, Now,
        "1 adds ` - host:port` of the client to its application_name at login.";
    auth_dbname: Option<String>, AuthDb, NULL, Yes, Now,
        "Database in which auth_query runs; unset, the one the client asks for.";
    auth_file: Option<String>, MaybeText, NULL, Yes, Now,
        "File of user names and secrets. It is read at start and on RELOAD.";
    auth_hba_file: String, Text, "", Yes, Now,
        "Rules that decide per connection, for auth_type = hba.";
    auth_ident_file: Option<String>, MaybeText, NULL, Yes, Now,
        "User name maps for the rules of auth_hba_file.";
    auth_ldap_options: Option<String>, MaybeText, NULL, Yes, Now,
        "Options for auth_type = ldap, spelled as in pg_hba.conf.";
    auth_query: String, Sql,
        "SELECT rolname, CASE WHEN rolvaliduntil < now() THEN NULL ELSE rolpassword END FROM pg_authid WHERE rolname=$1 AND rolcanlogin",
        Yes, Now,
        "Query that finds the secret of a user who is not in auth_file.";
    auth_type: AuthType, AUTH_TYPE, "md5", Yes, Now,
        "How clients prove who they are: see authentication.md.";
    auth_user: Option<String>, MaybeText, NULL, Yes, Now,
        "User who runs auth_query.";
    autodb_idle_timeout: Duration, Seconds, "3600", Yes, Now,
        "Seconds after which a database made from `*` is forgotten once nobody uses it.";
    busy_poll: u32, Int(0, 1000), "50", Yes, Now,
        "Microseconds that a worker with one busy client looks out for the next event before it sleeps, while events come that soon; 0 is not at all.";
    cancel_wait_timeout: Duration, Seconds, "10", Yes, Now,
        "Seconds a cancel request waits for a connection before it is dropped; 0 for ever.";
    client_idle_timeout: Duration, Seconds, "0", Yes, Now,
        "Seconds after which an idle client is disconnected; 0 never.";
    client_login_timeout: Duration, Seconds, "60", Yes, Now,
        "Seconds a client may take to log in; 0 for ever.";
    client_tls13_ciphers: Option<String>, MaybeText, NULL, Yes, Now,
        "TLS 1.3 cipher suites offered to clients, in this order; unset, all three.";
    client_tls_ca_file: String, Text, "", Yes, Now,
        "Certificates that client certificates are checked against. Where it is set, clients are asked for one.";
    client_tls_cert_file: String, Text, "", Yes, Now,
        "Certificate shown to clients.";
    client_tls_ciphers: String, Text, "default", Yes, Now,
        "Cipher suites offered to clients up to TLS 1.2.";
    client_tls_dheparams: String, Text, "auto", Yes, Now,
        "none, auto or legacy. There is no key exchange by DHE here, only by ECDHE.";
    client_tls_ecdhcurve: String, Text, "auto", Yes, Now,
        "Curves for clients: auto, or names with colons (X25519, prime256v1, secp384r1).";
    client_tls_key_file: String, Text, "", Yes, Now,
        "Private key of client_tls_cert_file.";
    client_tls_protocols: String, Text, "secure", Yes, Now,
        "TLS versions offered to clients: secure, all, or a list. 1.2 and 1.3 are what there is.";
    client_tls_sslmode: SslMode, SSL_MODE, "disable", Yes, Now,
        "Whether clients use TLS: disable, they cannot; allow and prefer, they may; require, they must, over TCP; verify-ca and verify-full, they need a certificate too.";
    conffile: Option<String>, MaybeText, NULL, Yes, Now,
        "The file this comes from; changing it makes the next RELOAD read another.";
    console_old_columns: bool, Flag, "0", Yes, Now,
        "1 ends SHOW STATS with total_requests and SHOW DATABASES with reserve_pool, as old monitoring asks for them.";
    default_pool_size: u32, ANY, "20", Yes, Now,
        "Servers per pool, that is per database and user; 0 is no limit.";
    disable_pqexec: bool, Flag, "0", No, Now,
        "1 refuses the simple query protocol.";
    dns_max_ttl: Duration, Seconds, "15", Yes, Now,
        "Seconds for which an address found for a host name is used.";
    dns_nxdomain_ttl: Duration, Seconds, "15", Yes, Now,
        "Seconds for which a host name that was not found counts as missing.";
    dns_zone_check_period: Duration, Seconds, "0", Yes, Now,
        "Seconds between looks at the serial numbers of the host names' zones; 0 never.";
    idle_transaction_timeout: Duration, Seconds, "0", Yes, Now,
        "Seconds a client may sit idle inside a transaction; 0 for ever.";
    ignore_startup_parameters: List, Items, "", Yes, Now,
        "Start-up parameters that are accepted and dropped. `options` drops unknown ones in there.";
    io_driver: IoDriver, IO_DRIVER, "auto", No, Now,
        "Interface to the kernel; auto is io_uring where the kernel has and allows it.";
    job_name: String, Text, "pgbouncer", No, WINDOWS,
        "Name of the Windows service.";
    listen_addr: List, Items, "", No, Now,
        "Addresses or host names to listen on; `*` is all, empty no TCP at all.";
    listen_backlog: u32, ANY, "128", No, Now,
        "Connections the kernel queues before they are accepted.";
    listen_hub: bool, Flag, "1", Yes, Now,
        "1 lets one server of a pool listen for all of its clients that LISTEN in transaction mode; 0 has each of them keep its server.";
    listen_port: u16, Port, "6432", No, Now,
        "TCP port, and the ending of the Unix socket's name.";
    log_connections: bool, Flag, "1", Yes, Now,
        "1 logs every login.";
    log_disconnections: bool, Flag, "1", Yes, Now,
        "1 logs every disconnection and its reason.";
    log_pooler_errors: bool, Flag, "1", Yes, Now,
        "1 logs the errors that are sent to clients.";
    log_stats: bool, Flag, "1", Yes, Now,
        "1 logs a line of averages every stats_period.";
    logfile: String, Text, "", Yes, Now,
        "Log file; empty for standard error only. It is opened anew on RELOAD.";
    login_notify_message: String, Prose, "", Yes, Now,
        "Notice sent to every client after its login; empty for none.";
    max_client_conn: u32, ANY, "100", Yes, Now,
        "Clients at once, those logging in included; console logins are exempt.";
    max_db_client_connections: u32, ANY, "0", Yes, Now,
        "Clients per database; 0 is no limit.";
    max_db_connections: u32, ANY, "0", Yes, Now,
        "Servers per database over all its users; 0 is no limit.";
    max_packet_size: u32, POSITIVE, "2147483647", Yes, Now,
        "Bytes of the largest message that is let through; a larger one ends the connection.";
    max_pinned_servers: u32, ANY, "0", Yes, Now,
        "Servers per pool whose clients may keep them between transactions (see transaction-mode.md); a client that would be one more is disconnected. 0 is no limit but the pool's size.";
    max_prepared_statements: u32, ANY, "200", Yes, Now,
        "Prepared statements kept per server in transaction and statement mode; 0 is off.";
    max_user_client_connections: u32, ANY, "0", Yes, Now,
        "Clients per user; 0 is no limit.";
    max_user_connections: u32, ANY, "0", Yes, Now,
        "Servers per user over all databases; 0 is no limit.";
    min_pool_size: u32, ANY, "0", Yes, Now,
        "Servers kept open per pool that is in use or has a forced user.";
    peer_id: u32, Int(0, 65535), "0", Yes, Now,
        "This process's number in [peers]; 0 is no peering.";
    pidfile: String, Text, "", No, Now,
        "File for the process number; needed with -d.";
    pin_idle_timeout: Duration, Seconds, "0", Yes, Now,
        "Seconds after which a client that keeps its server between transactions, and is idle, is disconnected; 0 never.";
    pin_timeout: Duration, Seconds, "0", Yes, Now,
        "Seconds for which a client may keep its server between transactions; after that it is disconnected as soon as it is in none. 0 for ever.";
    pkt_buf: u32, POSITIVE, "4096", No, BUFFERS,
        "Bytes of a connection's buffer.";
    pool_mode: PoolMode, POOL_MODE, "session", Yes, Now,
        "When a server goes back to its pool.";
    pool_idle_timeout: Duration, Seconds, "0", Yes, Now,
        "Seconds after which a pool with neither clients nor servers is forgotten; 0 never.";
    query_timeout: Duration, Seconds, "0", Yes, Now,
        "Seconds a query may take before its server is closed; 0 for ever.";
    query_wait_notify: u32, ANY, "5", Yes, Now,
        "Seconds after which a waiting client gets a notice that it is in line; 0 never.";
    query_wait_timeout: Duration, Seconds, "120", Yes, Now,
        "Seconds a client waits for a server before it is disconnected; 0 for ever.";
    reserve_pool_size: u32, ANY, "0", Yes, Now,
        "Servers a pool may open beyond its size when clients wait too long; 0 is none.";
    reserve_pool_timeout: Duration, Seconds, "5", Yes, Now,
        "Seconds the first in line must have waited before the reserve is used; 0 never.";
    resolv_conf: String, Text, "", No, Now,
        "Resolver configuration in place of /etc/resolv.conf.";
    sbuf_loopcnt: u32, ANY, "5", Yes, BUFFERS,
        "Buffers handled per connection before the next one has its turn.";
    scram_iterations: u32, POSITIVE, "4096", Yes, Now,
        "SCRAM iterations for secrets that auth_file gives in plain text.";
    server_check_delay: Duration, Seconds, "30", Yes, Now,
        "Seconds idle after which a server is checked before its next use; 0 always.";
    server_check_query: String, Sql, "<empty>", Yes, Now,
        "Query that checks a server; `<empty>` sends an empty one, nothing turns it off.";
    server_connect_timeout: Duration, Seconds, "15", Yes, Now,
        "Seconds that connecting and logging in to a server may take.";
    server_fast_close: bool, Flag, "0", Yes, Now,
        "1 closes an obsolete server in session mode after its transaction, with its client.";
    server_idle_timeout: Duration, Seconds, "600", Yes, Now,
        "Seconds after which an idle server is closed; 0 never.";
    server_lifetime: Duration, Seconds, "3600", Yes, Now,
        "Seconds after which a server is closed once nobody uses it; 0 uses each only once.";
    server_login_retry: Duration, Seconds, "15", Yes, Now,
        "Seconds to wait after a failed server login before the next try.";
    server_reset_query: String, Sql, "DISCARD ALL", Yes, Now,
        "Query that cleans a server when its client leaves, in session mode.";
    server_reset_query_always: bool, Flag, "0", Yes, Now,
        "1 runs server_reset_query in the other pool modes too.";
    server_round_robin: bool, Flag, "0", Yes, Now,
        "1 takes the server that was idle longest, 0 the one used last.";
    server_tls13_ciphers: Option<String>, MaybeText, NULL, Yes, Now,
        "TLS 1.3 cipher suites offered to servers, in this order; unset, all three.";
    server_tls_ca_file: String, Text, "", Yes, Now,
        "Certificates that server certificates are checked against; unset, the system's.";
    server_tls_cert_file: String, Text, "", Yes, Now,
        "Certificate shown to servers.";
    server_tls_ciphers: String, Text, "default", Yes, Now,
        "Cipher suites offered to servers up to TLS 1.2.";
    server_tls_key_file: String, Text, "", Yes, Now,
        "Private key of server_tls_cert_file.";
    server_tls_protocols: String, Text, "secure", Yes, Now,
        "TLS versions offered to servers: secure, all, or a list. 1.2 and 1.3 are what there is.";
    server_tls_sslmode: SslMode, SSL_MODE, "prefer", Yes, Now,
        "Whether servers are spoken to in TLS, over TCP: disable, never; allow and prefer, if they can; require, always; verify-ca, if their certificate is known too; verify-full, if it also names the host.";
    service_name: Option<String>, MaybeText, NULL, No, WINDOWS,
        "Another name for job_name.";
    session_report: bool, Flag, "0", Yes, Now,
        "1 reads what clients do in any pool_mode, and SHOW SESSION_REPORT tells what comes of it in transaction mode: see transaction-mode.md. It costs the reading of each new statement.";
    session_state: StatePolicy, States, "", Yes, Now,
        "What is done about session state in transaction and statement mode, by its kind: see transaction-mode.md. Kinds that are not named: settings, prepared statements and LISTEN are tracked, all else pins.";
    session_state_check_always: bool, Flag, "0", Yes, Now,
        "1 asks the server after each transaction with statements on tables, or calls of functions, what they left in its session; 0 believes one that was seen to leave nothing twice and leads to nothing that could, for a minute: see transaction-mode.md.";
    so_reuseport: bool, Flag, "0", No, Now,
        "1 lets several processes listen on the same port.";
    stats_period: u32, POSITIVE, "60", Yes, Now,
        "Seconds that averages are taken over, and between the log's lines of them.";
    stats_users: List, Items, "", Yes, Now,
        "Users who may look at the console but change nothing.";
    suspend_timeout: Duration, Seconds, "10", Yes, Now,
        "Seconds that SUSPEND waits for buffers to empty before it closes what is left.";
    syslog: bool, Flag, "0", Yes, Now,
        "1 logs to the system's logger (`/dev/log`) too.";
    syslog_facility: String, Text, "daemon", Yes, Now,
        "Facility of the lines in syslog: auth, authpriv, daemon, user, local0 to local7.";
    syslog_ident: String, Text, "pgbouncer", Yes, Now,
        "Name under which lines appear in syslog.";
    tcp_defer_accept: u32, ANY, "1", Yes, Now,
        "Anything but 0 lets the kernel hold back connections that have sent nothing.";
    tcp_keepalive: bool, Flag, "1", Yes, Now,
        "1 turns TCP keepalive on.";
    tcp_keepcnt: u32, ANY, "0", Yes, Now,
        "Keepalive probes unanswered before a connection counts as dead; 0 is the system's.";
    tcp_keepidle: u32, ANY, "0", Yes, Now,
        "Seconds of silence before the first keepalive probe; 0 is the system's.";
    tcp_keepintvl: u32, ANY, "0", Yes, Now,
        "Seconds between keepalive probes; 0 is the system's.";
    tcp_socket_buffer: u32, ANY, "0", Yes, Now,
        "Bytes of the kernel's buffers per connection; 0 is the system's.";
    tcp_user_timeout: u32, ANY, "0", Yes, Now,
        "Milliseconds that sent data may stay unacknowledged; 0 is the system's.";
    track_extra_parameters: List, Items, "IntervalStyle", No, Now,
        "Parameters that servers report, kept per client besides the usual five.";
    track_session_state: bool, Flag, "1", Yes, Now,
        "1 lets session state follow its client from server to server in transaction and statement mode; 0 leaves it behind, and refuses startup parameters that are not tracked.";
    transaction_timeout: Duration, Seconds, "0", Yes, Now,
        "Seconds a transaction may take; 0 for ever.";
    unix_socket_dir: String, Text, "/tmp", No, Now,
        "Directory of the Unix socket; `@` first is the abstract namespace, empty is none.";
    unix_socket_group: String, Text, "", No, Now,
        "Group that owns the Unix socket; empty leaves it alone.";
    unix_socket_mode: u32, Int(0, 0o7777), "0777", No, Now,
        "Permissions of the Unix socket, octal when written with a leading 0.";
    user: Option<String>, MaybeText, NULL, No, Now,
        "System user to become when started as root.";
    verbose: u32, ANY, NULL, Yes, Now,
        "How much is logged beyond the usual; each -v adds one.";
    workers: u32, Int(0, 1024), "0", No, Now,
        "Threads that serve clients; 0 is one per core this process may use.";
}

/// What a field holds before its default is read.
trait Blank {
    fn blank() -> Self;
}

macro_rules! blank {
    ($($type:ty = $value:expr;)*) => {$(
        impl Blank for $type {
            fn blank() -> Self {
                $value
            }
        }
    )*};
}

blank! {
    bool = false;
    u16 = 0;
    u32 = 0;
    Duration = Duration::ZERO;
    String = Self::new();
    Option<String> = None;
    List = Self::default();
    StatePolicy = Self::default();
    AuthType = Self::Md5;
    PoolMode = Self::Session;
    SslMode = Self::Disable;
    IoDriver = Self::Auto;
}

impl Default for Settings {
    fn default() -> Self {
        let mut settings = Self::blank();
        for row in TABLE {
            // A default that does not read is found by a test, for every row.
            let _ = row.default.is_none_or(|text| (row.set)(&mut settings, text));
        }
        settings
    }
}

impl Settings {
    /// The row of the setting of this name, to the letter.
    #[must_use]
    pub fn row(name: &str) -> Option<&'static Row> {
        TABLE.iter().find(|row| row.name == name)
    }

    /// The value of `name` as SHOW CONFIG prints it. `None` is NULL, or no such setting.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<String> {
        Self::row(name).and_then(|row| (row.show)(self))
    }

    /// The rows of SHOW CONFIG.
    pub fn shown(&self) -> impl Iterator<Item = Shown> + '_ {
        // PgBouncer has service_name on Windows only.
        TABLE.iter().filter(|row| row.name != "service_name").map(|row| Shown {
            key: row.name,
            value: (row.show)(self),
            default: row.default,
            changeable: row.reloadable == Reloadable::Yes,
        })
    }

    /// The query of server_check_query: `None` is no check, the empty text an empty query.
    #[must_use]
    pub fn check_query(&self) -> Option<&str> {
        match self.server_check_query.as_str() {
            "" => None,
            "<empty>" => Some(""),
            query => Some(query),
        }
    }
}

impl Row {
    /// Reads `text` into its field; `None` if it says nothing of the kind.
    pub(crate) fn set(&self, settings: &mut Settings, text: &str) -> bool {
        (self.set)(settings, text)
    }

    /// As [`Row::set`], for a line of a file, which may end in a comment.
    pub(crate) fn set_line(&self, settings: &mut Settings, text: &str) -> Option<Set> {
        let comments = (self.comments)();
        let bare = before_comment(text, comments);
        if self.set(settings, bare.unwrap_or(text)) {
            return Some(match bare {
                Some(_) => Set::WithoutComment,
                None if before_comment(text, Comments::Strip).is_some() => Set::WithComment,
                None => Set::Done,
            });
        }
        None
    }

    /// Takes over the value that `from` has.
    pub(crate) fn copy(&self, settings: &mut Settings, from: &Settings) {
        (self.copy)(settings, from);
    }

    /// What would be a right value, after "expected ".
    #[must_use]
    pub fn expects(&self) -> String {
        (self.expects)()
    }

    /// As SHOW CONFIG prints the value.
    #[must_use]
    pub fn show(&self, settings: &Settings) -> Option<String> {
        (self.show)(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{parse, set_runtime};

    /// What PgBouncer shows, and our three: name, kind, changeable, default (`-` is empty).
    const ORACLE: &str = "
        admin_users text yes -
        application_name_add_host flag yes 0
        auth_dbname text yes NULL
        auth_file text yes NULL
        auth_hba_file text yes -
        auth_ident_file text yes NULL
        auth_ldap_options text yes NULL
        auth_query text yes auth_query
        auth_type word yes md5
        auth_user text yes NULL
        autodb_idle_timeout time yes 3600
        busy_poll poll yes 50
        cancel_wait_timeout time yes 10
        client_idle_timeout time yes 0
        client_login_timeout time yes 60
        client_tls13_ciphers text yes NULL
        client_tls_ca_file text yes -
        client_tls_cert_file text yes -
        client_tls_ciphers text yes default
        client_tls_dheparams text yes auto
        client_tls_ecdhcurve text yes auto
        client_tls_key_file text yes -
        client_tls_protocols text yes secure
        client_tls_sslmode word yes disable
        conffile text yes NULL
        console_old_columns flag yes 0
        default_pool_size int yes 20
        disable_pqexec flag no 0
        dns_max_ttl time yes 15
        dns_nxdomain_ttl time yes 15
        dns_zone_check_period time yes 0
        idle_transaction_timeout time yes 0
        ignore_startup_parameters text yes -
        io_driver word no auto
        job_name text no pgbouncer
        listen_addr text no -
        listen_backlog int no 128
        listen_hub flag yes 1
        listen_port port no 6432
        log_connections flag yes 1
        log_disconnections flag yes 1
        log_pooler_errors flag yes 1
        log_stats flag yes 1
        logfile text yes -
        login_notify_message text yes -
        max_client_conn int yes 100
        max_db_client_connections int yes 0
        max_db_connections int yes 0
        max_packet_size positive yes 2147483647
        max_pinned_servers int yes 0
        max_prepared_statements int yes 200
        max_user_client_connections int yes 0
        max_user_connections int yes 0
        min_pool_size int yes 0
        peer_id peer yes 0
        pidfile text no -
        pin_idle_timeout time yes 0
        pin_timeout time yes 0
        pkt_buf positive no 4096
        pool_mode word yes session
        pool_idle_timeout time yes 0
        query_timeout time yes 0
        query_wait_notify int yes 5
        query_wait_timeout time yes 120
        reserve_pool_size int yes 0
        reserve_pool_timeout time yes 5
        resolv_conf text no -
        sbuf_loopcnt int yes 5
        scram_iterations positive yes 4096
        server_check_delay time yes 30
        server_check_query text yes <empty>
        server_connect_timeout time yes 15
        server_fast_close flag yes 0
        server_idle_timeout time yes 600
        server_lifetime time yes 3600
        server_login_retry time yes 15
        server_reset_query text yes DISCARD ALL
        server_reset_query_always flag yes 0
        server_round_robin flag yes 0
        server_tls13_ciphers text yes NULL
        server_tls_ca_file text yes -
        server_tls_cert_file text yes -
        server_tls_ciphers text yes default
        server_tls_key_file text yes -
        server_tls_protocols text yes secure
        server_tls_sslmode word yes prefer
        service_name text no NULL
        session_report flag yes 0
        session_state states yes -
        session_state_check_always flag yes 0
        so_reuseport flag no 0
        stats_period positive yes 60
        stats_users text yes -
        suspend_timeout time yes 10
        syslog flag yes 0
        syslog_facility text yes daemon
        syslog_ident text yes pgbouncer
        tcp_defer_accept int yes 1
        tcp_keepalive flag yes 1
        tcp_keepcnt int yes 0
        tcp_keepidle int yes 0
        tcp_keepintvl int yes 0
        tcp_socket_buffer int yes 0
        tcp_user_timeout int yes 0
        track_extra_parameters text no IntervalStyle
        track_session_state flag yes 1
        transaction_timeout time yes 0
        unix_socket_dir text no /tmp
        unix_socket_group text no -
        unix_socket_mode mode no 0777
        user text no NULL
        verbose int yes NULL
        workers workers no 0";

    struct Told {
        name: &'static str,
        kind: &'static str,
        changeable: bool,
        default: Option<&'static str>,
    }

    fn told() -> Vec<Told> {
        let lines = ORACLE.lines().map(str::trim).filter(|line| !line.is_empty());
        let told = |line: &'static str| {
            let words: Vec<_> = line.splitn(4, ' ').collect();
            let default = match words[3] {
                "NULL" => None,
                "-" => Some(""),
                "auth_query" => Settings::row("auth_query").expect("a setting").default,
                text => Some(text),
            };
            Told { name: words[0], kind: words[1], changeable: words[2] == "yes", default }
        };
        lines.map(told).collect()
    }

    fn load(name: &str, value: &str) -> Result<Settings, String> {
        let config = parse(&format!("[pgbouncer]\n{name} = {value}"));
        config.map(|config| config.settings).map_err(|problems| problems.to_string())
    }

    #[test]
    fn the_table_is_what_pgbouncer_has() {
        let want = told();
        assert_eq!(TABLE.len(), want.len());
        for (row, want) in TABLE.iter().zip(want) {
            assert_eq!(row.name, want.name);
            assert_eq!(row.default, want.default, "{}", row.name);
            assert_eq!(row.reloadable == Reloadable::Yes, want.changeable, "{}", row.name);
        }
    }

    /// Values of every kind, the ends of its range among them, and ones just beyond.
    #[test]
    fn every_setting_takes_what_it_should_and_refuses_the_rest() {
        for Told { name, kind, .. } in told() {
            let (good, bad): (&[&str], &[&str]) = match kind {
                "flag" => (&["0", "1", "0x1"], &["2", "-1", "yes", "on", "true", "", "1k"]),
                "int" => (
                    &["0", "1", "0x10", "0777", "2147483647", "5 # five", "5 ;"],
                    &["-1", "2147483648", "1k", "1.5", "", "08", "x"],
                ),
                "positive" => (&["1", "2147483647"], &["0", "-1", "2147483648", ""]),
                "port" => (&["1", "65535"], &["0", "65536", "-1", ""]),
                "peer" => (&["0", "65535"], &["65536", "-1"]),
                "mode" => (&["0", "0777", "07777", "511"], &["010000", "-1", "rwx"]),
                "poll" => (&["0", "1000"], &["1001", "-1", "50us", ""]),
                "workers" => (&["0", "1024"], &["1025", "-1", "auto"]),
                "time" => (
                    &["0", "1", "1.5", "2147483647", "60 # a minute"],
                    &["-1", "1h", "inf", "", "2147483648", "1 2"],
                ),
                "text" => (&["", "x", "x y", "'"], &[]),
                "word" => (&[], &["", "x", "0"]),
                "states" => (
                    &["", "load:error", "settings:track, listen:warn seed:PIN"],
                    &["load", "load:track", "settings:pin", "x:error"],
                ),
                other => panic!("{other}"),
            };
            for value in good {
                let loaded = load(name, value);
                assert!(loaded.is_ok(), "{name} = {value}: {loaded:?}");
            }
            for value in bad {
                let error = load(name, value).expect_err(&format!("{name} = {value}"));
                let want = format!(
                    "invalid value \"{value}\" for parameter {name} in configuration ((text):2): expected "
                );
                assert!(error.starts_with(&want), "{error}");
            }
        }
    }

    #[test]
    fn words_are_read_in_any_case() {
        let cases: &[(&str, &[&str])] = &[
            (
                "auth_type",
                &[
                    "any",
                    "trust",
                    "plain",
                    "md5",
                    "scram-sha-256",
                    "SCRAM-SHA-256",
                    "hba",
                    "pam",
                    "ldap",
                ],
            ),
            ("pool_mode", &["session", "transaction", "Statement"]),
            ("client_tls_sslmode", &["disable", "allow", "PREFER", "require", "verify-ca"]),
            ("server_tls_sslmode", &["disable", "allow", "prefer", "require", "verify-full"]),
            ("io_driver", &["auto", "IO_URING", "readiness"]),
        ];
        for (name, values) in cases {
            for value in *values {
                let shown = load(name, value).expect("a good value").value(name);
                assert_eq!(shown, Some(value.to_lowercase()), "{name}");
            }
        }
    }

    #[test]
    fn what_protects_somebody_and_is_not_there_is_refused() {
        assert!(load("auth_dbname", "pgbouncer").is_err());
        let error = load("auth_type", "cert").expect_err("nobody could check a certificate");
        assert!(error.contains("requires client_tls_sslmode=verify-full"), "{error}");
    }

    /// What SHOW CONFIG prints, written back into a file, is the same configuration.
    #[test]
    fn show_config_can_be_read_again() {
        let text = "[pgbouncer]\nunix_socket_mode = 0700\nquery_timeout = 1.50\n\
            admin_users = a, b\nauth_user = x\npool_mode = TRANSACTION\nmax_client_conn = 0x10";
        let first = parse(text).expect("a good configuration").settings;
        let mut again = "[pgbouncer]\n".to_owned();
        for Shown { key, value, .. } in first.shown() {
            if let Some(value) = value {
                again += &format!("{key} = {value}\n");
            }
        }
        let second = parse(&again).expect("a good configuration").settings;
        assert_eq!(first, second);
    }

    #[test]
    fn show_config_prints_as_pgbouncer_does() {
        let settings = load("query_timeout", "1.50").expect("a good value");
        let shown: Vec<Shown> = settings.shown().collect();
        let row = |key| shown.iter().find(|row| row.key == key).expect("a row").clone();
        let cells = |key| {
            let Shown { value, default, changeable, .. } = row(key);
            (value, default, changeable)
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(cells("unix_socket_mode"), (some("511"), Some("0777"), false));
        assert_eq!(cells("query_timeout"), (some("1.5"), Some("0"), true));
        assert_eq!(cells("server_check_query"), (some("<empty>"), Some("<empty>"), true));
        assert_eq!(cells("auth_user"), (None, None, true));
        assert_eq!(cells("auth_hba_file"), (some(""), Some(""), true));
        assert_eq!(cells("verbose"), (some("0"), None, true));
        assert_eq!(cells("conffile"), (some("(text)"), None, true));
        assert_eq!(cells("log_stats"), (some("1"), Some("1"), true));
        assert!(shown.iter().all(|row| row.key != "service_name"));
        assert_eq!(shown.len(), TABLE.len() - 1);
    }

    #[test]
    fn the_check_query_is_off_empty_or_a_query() {
        let query = |text| load("server_check_query", text).expect("a good value");
        assert_eq!(query("").check_query(), None);
        assert_eq!(query("<empty>").check_query(), Some(""));
        assert_eq!(query("select 1").check_query(), Some("select 1"));
    }

    #[test]
    fn a_setting_that_needs_a_restart_is_left_alone_without_an_error() {
        let mut config = parse("[pgbouncer]").expect("a good configuration");
        assert_eq!(set_runtime(&mut config, "listen_port", "1"), Ok(()));
        assert_eq!(set_runtime(&mut config, "listen_port", "nonsense"), Ok(()));
        assert_eq!(config.settings.listen_port, 6432);
        assert_eq!(set_runtime(&mut config, "query_timeout", "2.5"), Ok(()));
        assert_eq!(config.settings.query_timeout, Duration::from_millis(2500));
        let error = set_runtime(&mut config, "query_timout", "1").expect_err("no such setting");
        let want = "unknown parameter: pgbouncer/query_timout: did you mean \"query_timeout\"?";
        assert_eq!(error.to_string(), want);
        let error = set_runtime(&mut config, "query_timeout", "1h").expect_err("no unit");
        assert!(error.to_string().starts_with("invalid value \"1h\""));
        // A comment is a matter of files.
        assert!(set_runtime(&mut config, "query_timeout", "1 # x").is_err());
    }
}
