//! Benchmarks of warm calls.

use std::time::{Duration, Instant};

use serde::Serialize;
use transom_plugin_cases::{Cases, NamedCase, check};
use transom_plugin_host::trial::{Case, CaseInstance, LatencyHistogram, TrialComponent, Usage, micros};

use super::NotAdmitted;

/// The warm-up takes this fraction of a case's time.
const WARM_UP_DIVISOR: u32 = 10;
/// Buckets for each power of two: quantiles are exact to 3 %.
const BUCKETS_PER_DOUBLING: usize = 32;

/// The measurements of one case. A run executes the case once: an attempt with all its steps, or
/// one call; it takes one or more calls into the instance.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BenchResult {
    /// The case's name.
    pub name: String,
    /// Number of measured runs.
    pub runs: u64,
    /// Calls into the instance, over all runs.
    pub calls: u64,
    /// Sequential runs per second.
    pub runs_per_second: f64,
    /// Sequential calls per second.
    pub calls_per_second: f64,
    /// Median duration of a run in microseconds, within 3 %.
    pub p50_micros: f64,
    /// 90th percentile.
    pub p90_micros: f64,
    /// 99th percentile.
    pub p99_micros: f64,
    /// Maximum.
    pub max_micros: f64,
    /// Average processor time of a call in microseconds.
    pub cpu_micros_per_call: f64,
    /// Peak linear memory of the largest instance in bytes.
    pub memory: u64,
}

/// The benchmark's instance. It is replaced after as many runs as `limits.max-calls-per-instance`
/// allows calls.
struct Bench<'a> {
    component: &'a TrialComponent,
    instance: CaseInstance,
    /// Calls and processor time of earlier instances.
    before: (u64, Duration),
}

pub(super) async fn run(
    component: &TrialComponent,
    cases: &Cases,
    time: Duration,
) -> Result<Vec<BenchResult>, NotAdmitted> {
    let share = time / u32::try_from(cases.0.len()).unwrap_or(u32::MAX).max(1);
    let mut results = Vec::with_capacity(cases.0.len());
    for case in &cases.0 {
        let failed = |reason| NotAdmitted::Case {
            name: case.name.clone(),
            reason,
        };
        let mut bench = Bench {
            component,
            instance: component.instance().await.map_err(failed)?,
            before: (0, Duration::ZERO),
        };
        results.push(bench.measure(case, share).await.map_err(failed)?);
    }
    Ok(results)
}

impl Bench<'_> {
    async fn measure(&mut self, named_case: &NamedCase, share: Duration) -> Result<BenchResult, String> {
        let case = self.component.case(&named_case.case)?;
        let found = self.instance.execute(&case).await?;
        if let Some(expected) = case.expected() {
            check(&found, Some(expected))?;
        }
        let warm_up_start = Instant::now();
        while warm_up_start.elapsed() < share / WARM_UP_DIVISOR {
            self.run(&case).await?;
        }
        let (times, mut max) = (
            LatencyHistogram::<BUCKETS_PER_DOUBLING>::default(),
            Duration::ZERO,
        );
        let mut runs = 0;
        let before = self.usage();
        let start = Instant::now();
        // There is at least one run.
        while runs == 0 || start.elapsed() < share {
            let duration = self.run(&case).await?;
            times.add(duration);
            max = max.max(duration);
            runs += 1;
        }
        let time = start.elapsed().as_secs_f64();
        let usage = self.usage();
        let calls = usage.0 - before.0;
        // The upper end of a bucket may exceed the maximum, so it is clamped.
        let quantile_micros = |per_mille| micros(times.at(per_mille).unwrap_or_default().min(max));
        Ok(BenchResult {
            name: named_case.name.clone(),
            runs,
            calls,
            runs_per_second: runs as f64 / time,
            calls_per_second: calls as f64 / time,
            p50_micros: quantile_micros(500),
            p90_micros: quantile_micros(900),
            p99_micros: quantile_micros(990),
            max_micros: micros(max),
            cpu_micros_per_call: micros(usage.1.saturating_sub(before.1)) / calls.max(1) as f64,
            memory: self.instance.usage().memory,
        })
    }

    /// Executes the case once and returns its duration, without the time to drop its guest
    /// resources.
    async fn run(&mut self, case: &Case) -> Result<Duration, String> {
        let start = Instant::now();
        self.instance.run(case).await?;
        let duration = start.elapsed();
        self.instance.drop_resources().await?;
        if self.instance.should_recycle() {
            let before = self.usage();
            self.instance = self.component.successor(&self.instance).await?;
            // The creation of the new instance does not count.
            let Usage { calls, cpu, .. } = self.instance.usage();
            self.before = (before.0.saturating_sub(calls), before.1.saturating_sub(cpu));
        }
        Ok(duration)
    }

    /// Total calls and processor time.
    fn usage(&self) -> (u64, Duration) {
        let Usage { calls, cpu, .. } = self.instance.usage();
        (self.before.0 + calls, self.before.1 + cpu)
    }
}
