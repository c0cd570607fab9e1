//! Sets the stage for the drivers: starts PostgreSQL and the pooler, prints where they are, and takes both down at the end
//! of its input.
//!
//! `stage [--mode transaction|session|statement] [--pool N] [--auth TYPE] [--set name=value]…`

use harness::{Setup, World};

fn main() {
    let mut setup: Vec<(String, String)> = vec![("max_client_conn".into(), "500".into())];
    let mut pool = 10;
    let mut arguments = std::env::args().skip(1);
    while let Some(flag) = arguments.next() {
        let Some(value) = arguments.next() else { usage(&flag) };
        match flag.as_str() {
            "--mode" => setup.push(("pool_mode".into(), value)),
            "--auth" => setup.push(("auth_type".into(), value)),
            "--pool" => pool = value.parse().unwrap_or_else(|_| usage(&value)),
            "--set" => match value.split_once('=') {
                Some((name, value)) => setup.push((name.into(), value.into())),
                None => usage(&value),
            },
            _ => usage(&flag),
        }
    }
    let apply =
        |start: Setup| setup.iter().fold(start, |setup, (name, value)| setup.set(name, value));
    let world = World::with(pool, apply);
    println!("PGHOST=127.0.0.1");
    println!("PGPORT={}", world.howdah.port());
    println!("PGDATABASE=shop");
    println!("PGUSER=app");
    println!("PGPASSWORD={}", harness::postgres::PASSWORD);
    println!("DIRECT_PORT={}", world.postgres.port());
    println!("DIRECT_DATABASE={}", world.db);
    println!("READY=1");
    let mut line = String::new();
    while std::io::stdin().read_line(&mut line).is_ok_and(|count| count > 0) {}
    drop(world);
}

fn usage(what: &str) -> ! {
    eprintln!("stage: {what}? [--mode MODE] [--pool N] [--auth TYPE] [--set name=value]…");
    std::process::exit(2);
}
