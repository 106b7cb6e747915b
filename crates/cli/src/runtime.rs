//! This machine while Penstock is at it: its parts put together and its lock ([`machine`]), runs and what they leave
//! ([`run_directory`], [`kept_run`], [`evidence`], [`progress`]), what is done at each start ([`persisted`]), and watching ([`watch`]).

pub mod evidence;
pub mod kept_run;
pub mod machine;
pub mod persisted;
pub mod progress;
pub mod run_directory;
pub mod watch;
