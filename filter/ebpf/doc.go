// Package ebpf loads eBPF objects into the kernel and attaches their programs to network interfaces, so that they stay when
// the process ends: the work of `millrace filter`.
//
// An object is an ELF file as clang writes it (BTF, CO-RE, maps defined by BTF). Its programs and maps are loaded together
// and pinned below the BPF file system:
//
//	BPFFS/millrace/objects/NAME/programs/PROGRAM
//	BPFFS/millrace/objects/NAME/maps/MAP
//	BPFFS/millrace/objects/NAME/about      where the object came from, and what its programs say about themselves
//	BPFFS/millrace/links/NAME/...          attachments at tcx
//	BPFFS/millrace/staged/NAME             the same as an object, while a change is under way
//
// XDP programs share an interface by package pmd/xdp, with those of xdp-loader too. Programs for tc are attached by tcx
// (Linux 6.6), elsewhere as filters of a clsact qdisc. Contents of maps are read and written as JSON by their BTF types.
//
// Changes are made under a lock, each by one rename or one swap, and Store.Recover finishes or undoes what a killed process
// has left. The package reads no packets, and knows no rules: a program is what its object says.
//
//go:generate sh testdata/objects/build.sh
package ebpf
