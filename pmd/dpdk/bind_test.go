package dpdk

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/devargs"
	"github.com/millrace/millrace/pmd"
)

// fakeKernel binds one device as Linux does.
type fakeKernel struct {
	address  string
	driver   string // now; "" is none
	override string
	natural  string   // the driver whose table lists the device
	loaded   []string // drivers that there are
	fails    string   // writes to such a path fail
	writes   []string
	group    string // of the IOMMU; "" is none
}

func (k *fakeKernel) Readlink(path string) (string, error) {
	if path == pciDevices+"/"+k.address+"/iommu_group" && k.group != "" {
		return "../../../../kernel/iommu_groups/" + k.group, nil
	}
	if path != pciDevices+"/"+k.address+"/driver" || k.driver == "" {
		return "", &fs.PathError{Op: "readlink", Path: path, Err: fs.ErrNotExist}
	}
	return "../../../bus/pci/drivers/" + k.driver, nil
}

func (k *fakeKernel) Write(path, text string) error {
	k.writes = append(k.writes, path)
	switch {
	case k.fails != "" && strings.HasSuffix(path, k.fails):
		return unix.EACCES
	case path == pciDevices+"/"+k.address+"/driver_override":
		k.override = strings.TrimSpace(text)
	case path == pciDevices+"/"+k.address+"/driver/unbind" && text == k.address && k.driver != "":
		k.driver = ""
	case path == "/sys/bus/pci/drivers_probe" && text == k.address:
		want := k.natural
		if k.override != "" {
			want = k.override
		}
		if k.driver == "" && slices.Contains(k.loaded, want) {
			k.driver = want
		}
	default:
		return &fs.PathError{Op: "write", Path: path, Err: fs.ErrNotExist}
	}
	return nil
}

func nic() *fakeKernel {
	return &fakeKernel{address: "0000:3b:00.0", driver: "ice", natural: "ice", loaded: []string{"ice", "vfio-pci"}}
}

// bound takes a device from a kernel by a name with the argument bind.
func bound(t *testing.T, k *fakeKernel) (*Device, error) {
	t.Helper()
	where, err := devargs.Parse("dpdk:0000:3b:00.0,bind=vfio-pci")
	if err != nil || where.Text != "0000:3b:00.0" {
		t.Fatalf("%+v, %v", where, err)
	}
	d := &Device{Name: where.Text, where: where}
	return d, d.take(k)
}

func TestADeviceIsTakenAndGivenBack(t *testing.T) {
	for _, before := range []string{"ice", "", "vfio-pci"} {
		k := nic()
		k.driver = before
		d, err := bound(t, k)
		if err != nil || k.driver != "vfio-pci" {
			t.Fatalf("from %q: driver %q, %v", before, k.driver, err)
		}
		if err := d.restore(); err != nil || k.driver != before {
			t.Errorf("given back to %q, not %q: %v", k.driver, before, err)
		}
		if before != "vfio-pci" && k.override != "" {
			t.Errorf("from %q: the override %q is left", before, k.override)
		}
		if before == "vfio-pci" && len(k.writes) > 0 {
			t.Errorf("a device that is bound already: %v", k.writes)
		}
	}
}

func TestADeviceThatCannotBeTakenStaysTheKernels(t *testing.T) {
	for what, c := range map[string]struct {
		change func(k *fakeKernel)
		want   error
	}{
		"vfio-pci is not loaded": {func(k *fakeKernel) { k.loaded = []string{"ice"} }, nil},
		"without rights":         {func(k *fakeKernel) { k.fails = "driver_override" }, pmd.ErrPermission},
		"the driver holds on":    {func(k *fakeKernel) { k.fails = "unbind" }, pmd.ErrPermission},
	} {
		k := nic()
		c.change(k)
		d, err := bound(t, k)
		var op *pmd.OpError
		if !errors.As(err, &op) || op.Remedy == "" || c.want != nil && !errors.Is(err, c.want) || d.restore != nil {
			t.Errorf("%s: %v", what, err)
		}
		if k.driver != "ice" {
			t.Errorf("%s: the device has the driver %q", what, k.driver)
		}
	}
	k := nic()
	k.address, k.driver = "0000:ff:00.0", ""
	if _, err := bound(t, k); !errors.Is(err, ErrNoDevice) {
		t.Errorf("a device that is not there: %v", err)
	}
}
