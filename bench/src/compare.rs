//! A comparison: several poolers in turn, round after round, and one table of what was seen.

use std::time::Duration;

use crate::noise::Calibration;
use crate::pooler::Pooler;
use crate::sample::{Sample, Spread};

/// How often, and how patient with a noisy machine.
#[derive(Clone, Copy, Debug)]
pub struct Rounds {
    pub count: usize,
    /// How often a noisy sample is taken again before it is kept for what it is.
    pub retakes: usize,
}

/// One pooler's row: a sample per round, or why there is none.
pub struct Row {
    pub name: String,
    pub samples: Vec<Sample>,
    pub failure: Option<String>,
}

/// Takes turns: A B C, A B C, and so on. A pooler that fails once is out.
pub fn run(
    poolers: &[Pooler],
    rounds: Rounds,
    mut sample: impl FnMut(&Pooler) -> anyhow::Result<Sample>,
) -> Vec<Row> {
    let mut calibration = Calibration::default();
    let row =
        |pooler: &Pooler| Row { name: pooler.name.clone(), samples: Vec::new(), failure: None };
    let mut rows: Vec<Row> = poolers.iter().map(row).collect();
    for round in 1..=rounds.count {
        for (pooler, row) in poolers.iter().zip(&mut rows) {
            if row.failure.is_some() {
                continue;
            }
            match quietest(rounds.retakes, &mut calibration, || sample(pooler)) {
                Ok(sample) => {
                    eprintln!("  round {round} {:<12} {}", pooler.name, in_short(&sample));
                    row.samples.push(sample);
                }
                Err(error) => {
                    eprintln!("  round {round} {:<12} failed: {error:#}", pooler.name);
                    row.failure = Some(format!("{error:#}"));
                }
            }
        }
    }
    rows
}

/// Takes a sample, again if the machine was busy with something else; keeps the quietest.
fn quietest(
    retakes: usize,
    calibration: &mut Calibration,
    mut sample: impl FnMut() -> anyhow::Result<Sample>,
) -> anyhow::Result<Sample> {
    let mut best: Option<Sample> = None;
    for _ in 0..=retakes {
        // Who takes nothing again takes the machine as it is.
        if retakes > 0 {
            calibration.await_quiet(Duration::from_secs(10))?;
        }
        let before = calibration.slowdown();
        let mut taken = sample()?;
        taken.noise.slowdown = before.max(calibration.slowdown());
        let loudness = |sample: &Sample| sample.noise.loudness();
        if best.as_ref().is_none_or(|best| loudness(&taken) < loudness(best)) {
            best = Some(taken);
        }
        if best.as_ref().is_some_and(|best| !best.noise.is_loud()) {
            break;
        }
    }
    best.ok_or_else(|| anyhow::anyhow!("no sample was taken"))
}

fn in_short(sample: &Sample) -> String {
    let Sample { cpu_us, tps, noise, .. } = sample;
    let loud = if noise.is_loud() { format!("   NOISY: {noise}") } else { String::new() };
    format!("{cpu_us:6.2} µs/tx {tps:8.0} tx/s{loud}")
}

/// Prints a table. Ratios are taken within a round, against the row named `baseline`.
pub fn print(title: &str, rows: &[Row], baseline: &str) {
    println!("\n{title}");
    println!(
        "{:<14}{:>22}{:>24}{:>10}{:>10}{:>10}{:>8}{:>12}{:>7}",
        "",
        "CPU µs per tx",
        format!("× {baseline}"),
        "tx/s",
        "p50 µs",
        "p99 µs",
        "σ/mean",
        "longest/p50",
        "noisy",
    );
    let base = rows.iter().find(|row| row.name == baseline);
    for row in rows {
        if let Some(failure) = &row.failure {
            println!("{:<14}  {failure}", row.name);
            continue;
        }
        let of = |figure: fn(&Sample) -> f64| Spread::of(row.samples.iter().map(figure));
        let cpu = of(|sample| sample.cpu_us);
        let ratio = base.map(|base| {
            let pairs = row.samples.iter().zip(&base.samples);
            Spread::of(pairs.map(|(ours, theirs)| ours.cpu_us / theirs.cpu_us))
        });
        let loud = row.samples.iter().filter(|sample| sample.noise.is_loud()).count();
        let [tps, p50, p99] =
            [of(|sample| sample.tps), of(|sample| sample.p50_us), of(|sample| sample.p99_us)]
                .map(|spread| plain(spread.median, 0));
        let unevenness = plain(of(|sample| sample.unevenness).median, 3);
        let longest = plain(of(|sample| sample.longest_over_p50).median, 1);
        let ratio = ratio.map_or_else(String::new, with_spread);
        println!(
            "{:<14}{:>22}{ratio:>24}{tps:>10}{p50:>10}{p99:>10}{unevenness:>8}{longest:>12}{:>7}",
            row.name,
            with_spread(cpu),
            format!("{loud}/{}", row.samples.len()),
        );
    }
}

fn plain(figure: f64, digits: usize) -> String {
    if figure.is_finite() { format!("{figure:.digits$}") } else { "–".into() }
}

fn with_spread(spread: Spread) -> String {
    let Spread { median, least, most } = spread;
    if median.is_finite() && median > 0.0 {
        format!("{median:.2} ({least:.2}–{most:.2})")
    } else {
        "–".into()
    }
}
