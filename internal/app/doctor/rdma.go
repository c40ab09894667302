package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"unsafe"
)

// rdma looks at what RDMA needs beyond the drivers, and at devices of the kernel that use the same packets.
func (x *examination) rdma() {
	c := Check{Area: "rdma", Name: "memory of programs", Status: OK, Found: "reached by /proc/self/mem"}
	if err := x.OwnMemory(); err != nil {
		c.Status, c.Found = Warn, fmt.Sprintf("/proc/self/mem: %v; programs of `millrace exec --rdma` cannot hand their memory over", err)
		c.Remedy = "let processes write their own /proc/self/mem: the profile of the container or a security module forbids it"
	}
	x.add(c)
	c = Check{Area: "rdma", Name: "kernel's RDMA devices", Status: OK, Found: "none: UDP port 4791 is not in use by one"}
	if list := x.rdmaDevices(); len(list) > 0 {
		c.Status, c.Found = Warn, strings.Join(list, ", ")+": its packets go to Millrace where both have the same address and interface"
		c.Remedy = "give each an address of its own, or remove the kernel's: `rdma link delete NAME`"
	}
	x.add(c)
}

// rdmaDevices returns the kernel's devices of RoCE with their interfaces: "rxe0 (eth1)".
func (x *examination) rdmaDevices() (list []string) {
	entries, _ := fs.ReadDir(x.FS, "sys/class/infiniband")
	for _, e := range entries {
		if dev := x.text("sys/class/infiniband/" + e.Name() + "/ports/1/gid_attrs/ndevs/0"); dev != "" {
			list = append(list, e.Name()+" ("+dev+")")
		}
	}
	return list
}

// ownMemory writes a variable of this process by /proc/self/mem.
func ownMemory() (err error) {
	f, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	word := new([8]byte)
	if _, err := f.WriteAt([]byte("millrace"), int64(uintptr(unsafe.Pointer(word)))); err != nil {
		return err
	}
	if string(word[:]) != "millrace" {
		return errors.New("a write had no effect")
	}
	return nil
}
