package dpdk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/devargs"
	"github.com/millrace/millrace/pmd"
)

// userDrivers are the kernel's drivers that give a device to programs.
var userDrivers = []string{"vfio-pci", "uio_pci_generic", "igb_uio"}

// Release binds a NIC, by its PCI address, to a driver of the kernel again: driver, or with "" that which the kernel chooses.
// A program that was killed leaves its NIC with vfio-pci. It returns the drivers before and after; where the kernel drives
// the NIC already, it does nothing. A NIC that a program has open is a pmd.ErrBusy.
func Release(address, driver string) (before, after string, err error) {
	return release(kernelSysfs{}, "/proc", address, driver)
}

func release(s sysfs, proc, address, driver string) (before, after string, err error) {
	where, err := devargs.Parse(address)
	fail := func(err error, remedy string) (string, string, error) {
		return before, before, &pmd.OpError{Op: "release", Device: address, Err: err, Remedy: remedy}
	}
	if err == nil && where.Virtual {
		err = fmt.Errorf("%s is not on PCI: the kernel has never lost it", where.Name)
	}
	if err != nil {
		return fail(fmt.Errorf("%w: %w", ErrArguments, err), "name a PCI address, as 0000:3b:00.0: `lspci -D` lists them")
	}
	if before, err = driverOf(s, where.Name); err != nil {
		return fail(err, "")
	}
	if before == driver && driver != "" || driver == "" && before != "" && !slices.Contains(userDrivers, before) {
		return before, before, nil
	}
	if pid := holder(s, proc, where.Name); pid != 0 { // the kernel would wait for it, in unbind, without end
		return fail(fmt.Errorf("%w: process %d has it", pmd.ErrBusy, pid), fmt.Sprintf("end it: kill %d", pid))
	}
	if err := rebind(s, where.Name, before, driver); err != nil {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return fail(fmt.Errorf("%w: %w", ErrNoDevice, err), "`lspci -D` lists the devices")
		case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
			return fail(fmt.Errorf("%w: %w", pmd.ErrPermission, err), "run as root")
		}
		return fail(err, "")
	}
	if after, err = driverOf(s, where.Name); err == nil && (after == "" || driver != "" && after != driver) {
		_, _, err = fail(fmt.Errorf("the device has the driver %q now", after), "load the NIC's driver (modprobe), and try again")
	}
	return before, after, err
}

// rebind takes a device from one driver and lets the kernel find another: one of its tables, or the one that is named.
func rebind(s sysfs, address, from, to string) error {
	device := filepath.Join(pciDevices, address)
	if err := s.Write(filepath.Join(device, "driver_override"), to+"\n"); err != nil {
		return err
	}
	if from != "" {
		if err := s.Write(filepath.Join(device, "driver", "unbind"), address); err != nil {
			return err
		}
	}
	return s.Write("/sys/bus/pci/drivers_probe", address)
}

// holder returns a process that has the VFIO group of a device open; 0: none, or not to be seen.
func holder(s sysfs, proc, address string) int {
	group, err := s.Readlink(filepath.Join(pciDevices, address, "iommu_group"))
	if err != nil {
		return 0
	}
	file := "/dev/vfio/" + filepath.Base(group)
	links, _ := filepath.Glob(filepath.Join(proc, "[0-9]*", "fd", "*"))
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && to == file {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(link))))
			return pid
		}
	}
	return 0
}
