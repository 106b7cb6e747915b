//! Kernels that an emulated processor starts: those of boards and of the guests inside them.

/// What such a kernel does without, as parameters of its command line: what guards a real machine, and takes a sixth to a quarter of an emulated
/// one's start. That is tests of ciphers and a random number generator that measures the processor's jitter (`crypto/`), keys for signed
/// modules and encrypted ones (`certs/`, `security/keys/`), memory that is cleared before it is given out, and the audit of system calls.
pub const LEFT_OUT: &str = "cryptomgr.notests \
     initcall_blacklist=crypto_kdf108_init,jent_mod_init,load_system_certificate_list,init_encrypted init_on_alloc=0 audit=0";
