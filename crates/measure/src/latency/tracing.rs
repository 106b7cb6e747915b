//! The kernel's tracer, as a run finds it.
//!
//! hwlatdetect and rtla set the tracer for everybody and put it back at their own end only. One that is killed leaves it on:
//! `hwlat` then keeps interrupts off for half of every second, and timerlat's threads run on above everything else. And
//! hwlatdetect puts back less than it set (Documentation/trace/hwlat_detector.rst, rtla-timerlat.rst).

use std::{path::PathBuf, thread, time::Duration};

use penstock_host::{Root, chain, files};

/// Where tracefs is mounted; the first that is there.
const MOUNTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// What says which tracer works. Another one cannot be set up while it does.
const TRACER: &str = "current_tracer";
/// What turns recording on, for all tracers.
const ON: &str = "tracing_on";
/// What the tools set beside, in the order in which it is put back: limits and CPUs before recording goes on.
const SETTINGS: [&str; 10] = [
    "hwlat_detector/width",
    "hwlat_detector/window",
    "hwlat_detector/mode",
    "osnoise/cpus",
    "osnoise/timerlat_period_us",
    "osnoise/stop_tracing_us",
    "osnoise/stop_tracing_total_us",
    "tracing_thresh",
    "tracing_cpumask",
    ON,
];
/// The tracers that the tools set.
const OURS: [&str; 2] = ["hwlat", "timerlat"];
/// The instance that `rtla timerlat hist` makes.
const INSTANCE: &str = "instances/timerlat_hist";
/// How often, and how far apart, an instance that is busy is tried to remove: what had it open is ending.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(50);

/// The tracer as it was found.
#[derive(Clone, Debug)]
pub struct Tracing {
    root: Root,
    /// Files that there were, with what they said; empty where tracefs was not mounted.
    found: Vec<(&'static str, String)>,
    /// Whether somebody had the instance.
    instance: bool,
}

impl Tracing {
    /// Looks how it is.
    pub fn find(root: &Root) -> Tracing {
        let mut tracing = Tracing { root: root.clone(), found: Vec::new(), instance: false };
        let said = |file: &&'static str| Some((*file, tracing.read(file)?));
        let found = [TRACER].iter().chain(&SETTINGS).filter_map(said).collect();
        tracing.instance = tracing.path(INSTANCE).is_some_and(files::exists);
        tracing.found = found;
        tracing
    }

    /// Has it as it was found, and says what could not be done, with what to do.
    pub fn restore(&self) -> Vec<String> {
        let mut complaints: Vec<String> = self.remove_instance().into_iter().collect();
        let Some(now) = self.read(TRACER) else { return complaints };
        // Mounted meanwhile, by a tool that was killed: nobody else had a tracer then.
        let unmounted = [(TRACER, "nop".to_owned()), (ON, "1".to_owned())];
        let found: &[_] = match self.found.is_empty() {
            true if OURS.contains(&now.as_str()) => &unmounted,
            true => return complaints,
            false => &self.found,
        };
        // The width of hwlat is at most its window: whichever goes first, a second time both fit.
        for last in [false, true] {
            for (file, value) in found.iter().filter(|(file, value)| self.read(file).as_ref() != Some(value))
            {
                let Some(path) = self.path(file) else { continue };
                let Err(error) = files::write_attribute(&path, value) else { continue };
                if last {
                    let text = format!("the kernel's tracer is not as it was: write {value} into it again");
                    complaints.push(format!("{text}: {}", chain(&error)));
                }
            }
        }
        complaints
    }

    fn remove_instance(&self) -> Option<String> {
        let instance = self.path(INSTANCE).filter(|path| !self.instance && files::exists(path))?;
        // Its threads end at once, also where it cannot be removed.
        let stopped = files::write_attribute(instance.join(TRACER), "nop");
        let stopped = stopped.or_else(|error| if error.is_missing() { Ok(()) } else { Err(error) });
        let mut removed = files::remove_directory(&instance);
        for _ in 1..TRIES {
            if removed.is_ok() {
                break;
            }
            thread::sleep(PAUSE);
            removed = files::remove_directory(&instance);
        }
        let error = removed.and(stopped).err()?;
        Some(format!(
            "timerlat's instance of the kernel's tracer is still there, remove it: {}",
            chain(&error)
        ))
    }

    fn path(&self, file: &str) -> Option<PathBuf> {
        let mount = MOUNTS.into_iter().find(|mount| files::exists(self.root.path(*mount).join(TRACER)))?;
        Some(self.root.path(mount).join(file))
    }

    fn read(&self, file: &str) -> Option<String> {
        let text = files::read_to_string(self.path(file)?).ok()?;
        let text = text.trim();
        // Of words to choose from, the one that is chosen.
        let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        Some(chosen.map_or(text, |(chosen, _)| chosen).to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn machine(mount: &str) -> (tempfile::TempDir, PathBuf) {
        let tree = tempfile::tempdir().unwrap();
        let tracing = tree.path().join(mount.trim_start_matches('/'));
        for (file, value) in [
            ("current_tracer", "nop"),
            ("tracing_on", "1"),
            ("tracing_thresh", "0"),
            ("tracing_cpumask", "ff"),
            ("hwlat_detector/width", "500000"),
            ("hwlat_detector/window", "1000000"),
            ("hwlat_detector/mode", "none [round-robin] per-cpu"),
        ] {
            set(&tracing, file, value);
        }
        (tree, tracing)
    }

    fn set(tracing: &Path, file: &str, value: &str) {
        let path = tracing.join(file);
        files::create_dir_all(path.parent().unwrap()).unwrap();
        files::write_atomic(path, format!("{value}\n")).unwrap();
    }

    fn get(tracing: &Path, file: &str) -> String {
        files::read_to_string(tracing.join(file)).unwrap().trim().to_owned()
    }

    #[test]
    fn the_tracer_that_a_killed_tool_left_on_is_put_back() {
        for mount in MOUNTS {
            let (tree, tracing) = machine(mount);
            let found = Tracing::find(&Root::at(tree.path()));
            assert_eq!(found.restore(), Vec::<String>::new());
            assert_eq!(get(&tracing, "hwlat_detector/mode"), "none [round-robin] per-cpu", "nothing to do");
            for (file, value) in [
                ("current_tracer", "hwlat"),
                ("tracing_thresh", "10"),
                ("tracing_cpumask", "04"),
                ("hwlat_detector/mode", "[none] round-robin per-cpu"),
                ("hwlat_detector/width", "900000"),
                ("tracing_on", "0"),
            ] {
                set(&tracing, file, value);
            }
            assert_eq!(found.restore(), Vec::<String>::new());
            for (file, value) in [
                ("current_tracer", "nop"),
                ("tracing_thresh", "0"),
                ("tracing_cpumask", "ff"),
                ("hwlat_detector/mode", "round-robin"),
                ("hwlat_detector/width", "500000"),
                ("tracing_on", "1"),
            ] {
                assert_eq!(get(&tracing, file), value, "{file}");
            }
        }
    }

    #[test]
    fn where_tracefs_was_not_mounted_a_tracer_of_the_tools_is_turned_off_and_no_other() {
        for (left, then) in [("hwlat", "nop"), ("function", "function")] {
            let (tree, tracing) = machine(MOUNTS[0]);
            let empty = tempfile::tempdir().unwrap();
            let found = Tracing { root: Root::at(tree.path()), ..Tracing::find(&Root::at(empty.path())) };
            set(&tracing, "current_tracer", left);
            assert_eq!(found.restore(), Vec::<String>::new());
            assert_eq!(get(&tracing, "current_tracer"), then);
        }
    }

    #[test]
    fn the_instance_of_a_killed_timerlat_is_removed_and_somebody_elses_is_not() {
        let (tree, tracing) = machine(MOUNTS[0]);
        let found = Tracing::find(&Root::at(tree.path()));
        files::create_dir_all(tracing.join(INSTANCE)).unwrap();
        assert_eq!(found.restore(), Vec::<String>::new());
        assert!(!tracing.join(INSTANCE).exists());
        // In a plain directory a file is in the way; its threads are stopped all the same.
        set(&tracing, "instances/timerlat_hist/current_tracer", "timerlat");
        let elsewhere = Tracing::find(&Root::at(tree.path()));
        assert_eq!(elsewhere.restore(), Vec::<String>::new());
        assert_eq!(get(&tracing, "instances/timerlat_hist/current_tracer"), "timerlat");
        assert!(found.restore()[0].contains("timerlat_hist"));
        assert_eq!(get(&tracing, "instances/timerlat_hist/current_tracer"), "nop");
    }
}
