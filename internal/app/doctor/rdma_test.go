package doctor

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"
)

func TestRDMA(t *testing.T) {
	m := machine()
	h := host(m, good)
	if c := check(t, Examine(h, nil), "kernel's RDMA devices"); c.Status != OK || !strings.Contains(c.Found, "none") {
		t.Errorf("without a device: %+v", c)
	}
	m["sys/class/infiniband/rxe0/ports/1/gid_attrs/ndevs/0"] = &fstest.MapFile{Data: []byte("eth1\n")}
	m["sys/class/infiniband/mlx5_0/ports/1/lid"] = &fstest.MapFile{Data: []byte("7\n")} // a link of InfiniBand
	if c := check(t, Examine(h, nil), "kernel's RDMA devices"); c.Status != Warn || !strings.HasPrefix(c.Found, "rxe0 (eth1):") || c.Remedy == "" {
		t.Errorf("with rxe0: %+v", c)
	}
	h.OwnMemory = func() error { return errors.New("permission denied") }
	if c := check(t, Examine(h, nil), "memory of programs"); c.Status != Warn || !strings.Contains(c.Found, "denied") || c.Remedy == "" {
		t.Errorf("without /proc/self/mem: %+v", c)
	}
	if err := ownMemory(); err != nil {
		t.Errorf("here: %v", err)
	}
}
