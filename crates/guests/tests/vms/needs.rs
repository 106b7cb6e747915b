//! What a VM needs of its host is looked at before libvirt is asked.

use penstock_guests::GuestError;
use penstock_model::Boot;
use penstock_model::ByteSize;
use penstock_model::Vm;
use penstock_plan::action::GuestDefinition;
use std::fs;

use crate::host::{Host, TIMEOUT, a, chain, definition, says};

#[test]
fn what_a_vm_needs_is_looked_at_first() {
    let host = Host::new();
    let refused = |vm: Vm| {
        let error = host.defined(vm).create(&a(), TIMEOUT).unwrap_err();
        assert!(error.hint().is_some(), "{error}");
        chain(&error)
    };
    let expect = |vm: Vm, words: &str| {
        let text = refused(vm);
        assert!(text.contains(words), "{words:?} is not in: {text}");
    };
    let kernel = |kernel: &str, initramfs: Option<&str>| Vm {
        boot: Boot::Kernel { kernel: kernel.into(), initramfs: initramfs.map(str::to_owned) },
        ..Vm::default()
    };
    expect(kernel("/nonexistent/k", None), "the kernel /nonexistent/k of guest a does not exist");
    expect(
        kernel("/dev/null", Some("/nonexistent/i")),
        "the initramfs /nonexistent/i of guest a does not exist",
    );
    let disk = Boot::Disk { path: "/nonexistent/d".into(), format: Default::default() };
    expect(Vm { boot: disk, ..Vm::default() }, "the disk image /nonexistent/d of guest a does not exist");
    let huge = Vm { huge_pages: Some(ByteSize(2 << 20)), ..Vm::default() };
    expect(huge.clone(), "needs 8 huge pages of 2MiB, and this kernel has none of that size");
    let pages = host.path("root/sys/kernel/mm/hugepages/hugepages-2048kB");
    fs::create_dir_all(&pages).unwrap();
    fs::write(pages.join("free_hugepages"), "7\n").unwrap();
    expect(huge, "needs 8 huge pages of 2MiB, and 7 are free");

    host.function("0000:04:10.2", Some("igbvf"));
    expect(
        Vm::default(),
        "its IOMMU group 7 is not viable, for the host uses 0000:04:10.2 (driver igbvf) in it",
    );
    host.function("0000:04:10.2", Some("pcieport"));
    host.function("0000:04:10.0", Some("igbvf"));
    expect(Vm::default(), "it is bound to igbvf, not to vfio-pci");
    host.function("0000:04:10.0", None);
    expect(Vm::default(), "it is bound to no driver, not to vfio-pci");
    fs::remove_file(host.path("root/sys/bus/pci/devices/0000:04:10.0/iommu_group")).unwrap();
    expect(Vm::default(), "it is behind no IOMMU");
    host.function("0000:04:10.0", Some("vfio-pci"));

    fs::rename(host.path("builtin"), host.path("elsewhere")).unwrap();
    let text = refused(Vm::default());
    assert!(text.contains("builtin guest are not there; looked in /"), "{text}");
    fs::remove_file(host.path("root/dev/kvm")).unwrap();
    expect(Vm::default(), "this host has no KVM");
    assert_eq!(host.calls(), Vec::<String>::new(), "libvirt was not asked");
    let lots = GuestDefinition { memory: Some(1 << 50), ..definition("a", Vm::default()) };
    fs::write(host.path("root/dev/kvm"), "").unwrap();
    host.vms().define(&lots, TIMEOUT).unwrap();
    says(
        &host.vms().create(&a(), TIMEOUT).unwrap_err(),
        &["guest a needs 1073741824 MiB of memory, and the host has"],
    );
}

#[test]
fn a_function_is_one_guests() {
    let host = Host::new();
    let vms = host.running(Vm::default());
    vms.define(&definition("b", Vm::default()), TIMEOUT).unwrap();
    let error = vms.create(&"b".parse().unwrap(), TIMEOUT).unwrap_err();
    says(&error, &["function 0000:04:10.0 of guest b is in use: guest a has it"]);
    assert_eq!(error.hint().as_deref(), Some("stop it first: penstock stop MODEL a"));
    let other = GuestDefinition { memory: Some(32 << 20), ..definition("a", Vm::default()) };
    assert!(matches!(vms.define(&other, TIMEOUT), Err(GuestError::Running { .. })));
    assert!(matches!(vms.undefine(&a(), TIMEOUT), Err(GuestError::Running { .. })));
}
