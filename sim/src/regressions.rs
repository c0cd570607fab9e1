//! Seeds that once failed, and what was wrong.

#[cfg(test)]
mod tests {
    use crate::play;

    /// Each with the steps it was played for.
    const SEEDS: [(u64, u64); 17] = [
        // The first client of a pool on its worker was never let in: the server that told what its
        // pool is like had come from another worker.
        (7, 1500),
        (104, 1500),
        // A FATAL of the pooler's own was put into the midst of a server's message.
        (172, 1500),
        // A server died between the pool's order to give it out and the order's being carried out.
        (610, 1500),
        (621, 1500),
        // A FATAL came right behind a login, and the server was put to use.
        (203, 1500),
        // A cancel struck the reset that followed what it was meant for.
        (1803, 1500),
        // The pooler's own ParseComplete came between the halves of a notice.
        (200_528, 10_000),
        // `min_pool_size` of one pool took every slot that was freed for another.
        (102_297, 1500),
        // A cancel in line was answered in the midst of a notification.
        (3_023_080, 1500),
        // A Query cancelled in line had dropped the client's unnamed statement all the same.
        (6_002_419, 10_000),
        // A server was parted from its client in the midst of a notification, behind a probe's answer.
        (1107, 2000),
        // A temporary table went with a server that was spoilt, and its client went on without it.
        (2008, 2000),
        // A client that another server was found for was never read again.
        (5410, 2000),
        // A client was told of its server's end, and got another all the same.
        (27_165, 2000),
        // The first client of a hub left it before it heard markers, and waited for ever.
        (1_795_255_121, 2000),
        // A Sync of ours, ahead of a Query that follows another in a batch, ended what the client had not.
        (1_797_377_203, 2000),
    ];

    #[test]
    fn what_once_failed_does_not_fail_again() {
        for (seed, steps) in SEEDS {
            println!("seed {seed}, {steps} steps");
            play(seed, steps);
        }
    }

    /// The same few hundred worlds each time, so that a change that breaks one is told at once.
    #[test]
    fn a_few_hundred_short_lives() {
        for seed in 0..150 {
            println!("seed {seed}");
            play(seed, 1000);
        }
    }

    /// And some that nobody has seen before. A failure prints the seed.
    #[test]
    fn fresh_lives() {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let start = now.map_or(1, |now| now.as_nanos() as u64);
        for seed in start..start + 100 {
            println!("failed? replay with: STEPS=1000 sim {seed}");
            play(seed, 1000);
        }
    }
}
