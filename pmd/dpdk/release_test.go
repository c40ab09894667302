package dpdk

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/pmd"
)

// TestRelease gives a NIC back that a killed program has left, against a model of the kernel.
func TestRelease(t *testing.T) {
	for _, c := range []struct {
		name, has, asked string
		loaded           []string
		after            string
		want             error
		text             string
	}{
		{"to the kernel's choice", "vfio-pci", "", []string{"ice", "vfio-pci"}, "ice", nil, ""},
		{"without a driver", "", "", []string{"ice"}, "ice", nil, ""},
		{"to a named one", "vfio-pci", "ice-next", []string{"ice", "ice-next"}, "ice-next", nil, ""},
		{"the kernel has it", "ice", "", []string{"ice"}, "ice", nil, ""},
		{"it has the driver", "vfio-pci", "vfio-pci", []string{"vfio-pci"}, "vfio-pci", nil, ""},
		{"its driver is not loaded", "vfio-pci", "", []string{"vfio-pci"}, "", nil, "modprobe"},
		{"the named one is not loaded", "vfio-pci", "ice", []string{"vfio-pci"}, "", nil, "modprobe"},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := nic()
			k.driver, k.override, k.loaded = c.has, c.has, c.loaded
			before, after, err := release(k, t.TempDir(), "dpdk:3b:00.0", c.asked)
			if before != c.has || k.driver != c.after {
				t.Errorf("from %q to %q", before, k.driver)
			}
			if c.text != "" {
				if err == nil || !strings.Contains(err.Error(), c.text) {
					t.Error(err)
				}
			} else if err != nil || after != c.after {
				t.Error(after, err)
			}
			if c.asked == "" && c.has == "vfio-pci" && k.override != "" {
				t.Errorf("driver_override stays %q: the kernel would choose it again", k.override)
			}
		})
	}
}

func TestReleaseRefuses(t *testing.T) {
	for _, name := range []string{"eth0", "net_null0", "0000:3b:00.9"} {
		if _, _, err := release(nic(), t.TempDir(), name, ""); !errors.Is(err, ErrArguments) || !strings.Contains(err.Error(), "lspci") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := release(nic(), t.TempDir(), "0000:4b:00.0", ""); !errors.Is(err, ErrNoDevice) {
		t.Error(err)
	}
	k := nic()
	k.driver, k.fails = "vfio-pci", "unbind"
	if _, _, err := release(k, t.TempDir(), k.address, ""); !errors.Is(err, pmd.ErrPermission) {
		t.Error(err)
	}
	// A process that has the device's group open.
	k, proc := nic(), t.TempDir()
	k.driver, k.group = "vfio-pci", "17"
	fds := filepath.Join(proc, "4711", "fd")
	if err := errors.Join(os.MkdirAll(fds, 0o755), os.Symlink("/dev/vfio/17", filepath.Join(fds, "9"))); err != nil {
		t.Fatal(err)
	}
	if _, _, err := release(k, proc, k.address, ""); !errors.Is(err, pmd.ErrBusy) || !strings.Contains(err.Error(), "kill 4711") || k.driver != "vfio-pci" {
		t.Errorf("%v, and the driver is %q", err, k.driver)
	}
}
