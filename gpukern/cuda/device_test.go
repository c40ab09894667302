package cuda

import (
	"testing"

	"github.com/millrace/millrace/internal/hostkern"
)

// openFake opens a device of a driver without a GPU.
func openFake(t testing.TB) (*Device, *hostkern.Driver) {
	t.Helper()
	drv := hostkern.OpenDriver(t)
	return open(t, drv), drv
}

func open(t testing.TB, drv *hostkern.Driver) *Device {
	t.Helper()
	d, err := Open(Options{Library: drv.Path, Management: drv.Path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func TestOpenTellsWhatTheDeviceIs(t *testing.T) {
	d, _ := openFake(t)
	got := d.Info()
	if got.Name != "Fake GPU 0" || got.Bus != "0000:17:00.0" || got.Driver != "12.4" || got.Capability != 80 || got.SMs != 4 ||
		got.Memory != 1<<30 || got.L2 != 4<<20 || got.SharedSM != 228<<10 || got.Shared != 227<<10 {
		t.Errorf("%+v", got)
	}
}
