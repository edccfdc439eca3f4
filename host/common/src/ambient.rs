//! The time of day and chance: those of the machine, unless a simulation replaces them on its thread.
//!
//! Parts that a simulation runs read them here, so that a seed determines what they do. Durations are
//! measured in tokio's time, which tests and simulations can stop.

use std::cell::RefCell;
use std::rc::Rc;

use jiff::Timestamp;
use uuid::Uuid;

/// The time of day and chance of a simulated machine.
pub trait Ambient {
    /// The time of day.
    fn now(&self) -> Timestamp;

    /// Random bits.
    fn random(&self) -> u64;
}

thread_local! {
    static SIMULATED: RefCell<Option<Rc<dyn Ambient>>> = const { RefCell::new(None) };
}

/// Replaces the time of day and chance on this thread, until it is called with `None`.
pub fn simulate(ambient: Option<Rc<dyn Ambient>>) {
    SIMULATED.with(|simulated| *simulated.borrow_mut() = ambient);
}

/// The time of day.
pub fn now() -> Timestamp {
    simulated(|ambient| ambient.now()).unwrap_or_else(Timestamp::now)
}

/// A number from 0 to 1, without 1.
pub fn fraction() -> f64 {
    // The 53 bits that a number from 0 to 1 can have.
    (random() >> 11) as f64 / (1_u64 << 53) as f64
}

/// Random bits.
pub fn random() -> u64 {
    simulated(|ambient| ambient.random()).unwrap_or_else(rand::random)
}

/// A random UUID.
pub fn uuid() -> Uuid {
    let bits = u128::from(random()) << 64 | u128::from(random());
    uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid()
}

/// Runs something that computes for long on another thread, in a simulation on this one. `None` if the
/// runtime stops, or if it panics, which is logged.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    if simulated(|_| ()).is_some() {
        return Some(work());
    }
    let done = tokio::task::spawn_blocking(work).await;
    done.inspect_err(|error| tracing::error!(%error, "work on a blocking thread panicked or was cancelled"))
        .ok()
}

fn simulated<T>(use_it: impl FnOnce(&dyn Ambient) -> T) -> Option<T> {
    SIMULATED.with(|simulated| simulated.borrow().as_deref().map(use_it))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed;

    impl Ambient for Fixed {
        fn now(&self) -> Timestamp {
            Timestamp::UNIX_EPOCH
        }

        fn random(&self) -> u64 {
            u64::MAX
        }
    }

    #[test]
    fn a_simulation_replaces_time_and_chance_on_its_thread_only() {
        simulate(Some(Rc::new(Fixed)));
        assert_eq!((now(), random()), (Timestamp::UNIX_EPOCH, u64::MAX));
        assert!(fraction() < 1.0);
        let elsewhere = std::thread::spawn(|| now() > Timestamp::UNIX_EPOCH).join();
        assert!(elsewhere.expect("no panic"));
        simulate(None);
        assert!(now() > Timestamp::UNIX_EPOCH);
    }
}
