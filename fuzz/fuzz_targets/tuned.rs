//! Any bytes as a profile of TuneD, which includes itself, another profile and variables.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_exchange::{TunedSource, compare_with_tuned, read_tuned};
use penstock_model::audit::Audit;

const OTHER: &str = "[variables]\ncores=2-7\nmask=${f:cpulist2hex:${cores}}\n[sysctl]\nvm.stat_interval=10\n";

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let others = |source: TunedSource<'_>| match source {
        TunedSource::Profile("itself") => Ok(text.to_owned()),
        TunedSource::Profile("other") => Ok(OTHER.to_owned()),
        TunedSource::Variables("/v") => Ok("cores=4\n".to_owned()),
        other => Err(format!("{other:?} is not there")),
    };
    if let Ok(profile) = read_tuned(text, &others) {
        assert!(compare_with_tuned(&Audit::default(), &profile).rows.is_empty());
    }
});
