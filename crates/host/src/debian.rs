//! What this machine's apt knows of Debian.

use crate::process::Command;

/// The mirror of Debian that this machine's apt uses; `PENSTOCK_MIRROR` names another, and an empty one none. `None` where apt uses
/// none: mmdebstrap has its own default then.
pub fn mirror() -> Option<String> {
    if let Ok(mirror) = std::env::var("PENSTOCK_MIRROR") {
        return Some(mirror).filter(|mirror| !mirror.is_empty());
    }
    let format = "$(ORIGIN) $(CODENAME) $(COMPONENT) $(REPO_URI)";
    let targets = Command::new("apt-get").args(["indextargets", "--format", format]).run().ok()?;
    let text = targets.text();
    let mut lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.find_map(|fields| match *fields {
        // Suites like bookworm-security are on other mirrors; a release's own name has no hyphen.
        ["Debian", codename, "main", uri] if !codename.contains('-') => Some(uri.to_owned()),
        _ => None,
    })
}
