package choose

import (
	"slices"
	"testing"

	"github.com/millrace/millrace/gpukern"
)

// keeper is a fake with state on its device.
type keeper struct {
	*fake
	calls []string
}

func (k *keeper) call(name string) error { k.calls = append(k.calls, name); return nil }
func (k *keeper) ReadFlows() error       { return k.call("read flows") }
func (k *keeper) WriteFlows() error      { return k.call("write flows") }

// TestStateIsReadWhereItIsKept: by the GPU's back end where that does everything, else it is here already.
func TestStateIsReadWhereItIsKept(t *testing.T) {
	for _, tc := range []struct {
		choices []gpukern.Calibration
		want    []string
	}{
		{always, []string{"read flows", "write flows"}},
		{[]gpukern.Calibration{{Bytes: 512}}, nil},
	} {
		w := new(world)
		c, g := fakes(w, 10, 1)
		c.info.Ops = gpukern.OpFlow
		k := &keeper{fake: g}
		e := New(Config{CPU: c, GPU: k, Calibrations: tc.choices, Now: func() int64 { w.now++; return w.now }})
		for _, f := range []func() error{e.ReadFlows, e.WriteFlows} {
			if err := f(); err != nil {
				t.Error(err)
			}
		}
		if !slices.Equal(k.calls, tc.want) {
			t.Errorf("%+v: %q", tc.choices, k.calls)
		}
	}
}
