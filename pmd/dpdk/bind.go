package dpdk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/devargs"
	"github.com/millrace/millrace/pmd"
)

// sysfs is the part of sysfs that binds devices to drivers (Documentation/ABI/testing/sysfs-bus-pci).
type sysfs interface {
	Readlink(path string) (string, error)
	Write(path, text string) error
}

// kernelSysfs is that of the running kernel.
type kernelSysfs struct{}

func (kernelSysfs) Readlink(path string) (string, error) { return os.Readlink(path) }

// Write writes to a file that exists: sysfs creates none.
func (kernelSysfs) Write(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// pciDevices is the folder of the devices of PCI.
const pciDevices = "/sys/bus/pci/devices"

// KernelInterface returns the interface of the kernel on which a device is, or that the kernel's driver of a NIC has made; ""
// where there is none.
func KernelInterface(name string) string {
	if iface := devargs.Interface(name); iface != "" {
		return iface
	}
	where, err := devargs.Parse(name)
	if err != nil || where.Virtual {
		return ""
	}
	interfaces, err := os.ReadDir(filepath.Join(pciDevices, where.Name, "net"))
	if err != nil || len(interfaces) == 0 { // vfio-pci makes none
		return ""
	}
	return interfaces[0].Name()
}

// driverOf returns the kernel's driver of a device; "" where it has none.
func driverOf(s sysfs, address string) (string, error) {
	link, err := s.Readlink(filepath.Join(pciDevices, address, "driver"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return filepath.Base(link), err
}

// bind gives a device to a driver, by name, and returns the one that had it. With driver_override the kernel considers no
// other driver for the device, also one that does not list its identifiers, as vfio-pci.
func bind(s sysfs, address, driver string) (before string, err error) {
	if before, err = driverOf(s, address); err != nil || before == driver {
		return before, err
	}
	if err := s.Write(filepath.Join(pciDevices, address, "driver_override"), driver+"\n"); err != nil {
		return before, err
	}
	if before != "" {
		if err := s.Write(filepath.Join(pciDevices, address, "driver", "unbind"), address); err != nil {
			return before, err
		}
	}
	return before, probe(s, address, driver)
}

// giveBack returns a device to the driver that it had before bind, or to the kernel's choice.
func giveBack(s sysfs, address, driver string) error {
	now, err := driverOf(s, address)
	if err != nil || now == driver {
		return err
	}
	if now != "" {
		if err := s.Write(filepath.Join(pciDevices, address, "driver", "unbind"), address); err != nil {
			return err
		}
	}
	if err := s.Write(filepath.Join(pciDevices, address, "driver_override"), "\n"); err != nil {
		return err
	}
	if driver == "" {
		return nil // it had none
	}
	return probe(s, address, driver)
}

// probe lets the kernel find the driver of a device, and checks that it is the one.
func probe(s sysfs, address, driver string) error {
	if err := s.Write("/sys/bus/pci/drivers_probe", address); err != nil {
		return err
	}
	now, err := driverOf(s, address)
	if err == nil && now != driver {
		err = fmt.Errorf("the device has the driver %q, not %q", now, driver)
	}
	return err
}

// take binds the device as its name asks, and remembers to whom it belongs.
func (d *Device) take(s sysfs) error {
	if d.where.Bind == "" {
		return nil
	}
	before, err := bind(s, d.where.Name, d.where.Bind)
	if err != nil {
		if restore := giveBack(s, d.where.Name, before); restore != nil {
			err = errors.Join(err, fmt.Errorf("give it back: %w", restore))
		}
		e := &pmd.OpError{Op: "bind", Device: d.Name, Err: err, Remedy: "modprobe " + d.where.Bind + ", and run as root"}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			e.Err = fmt.Errorf("%w: %w", ErrNoDevice, err)
		case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
			e.Err = fmt.Errorf("%w: %w", pmd.ErrPermission, err)
		}
		return e
	}
	d.restore = func() error {
		if err := giveBack(s, d.where.Name, before); err != nil {
			return &pmd.OpError{Op: "give back", Device: d.Name, Err: err, Remedy: "dpdk-devbind.py -b " + before + " " + d.where.Name}
		}
		return nil
	}
	return nil
}
