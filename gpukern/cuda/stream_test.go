package cuda

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestStreamsWaitForEvents(t *testing.T) {
	devices(t, func(t *testing.T, d *Device) {
		e := startEcho(t, d, 10*time.Second)
		next, buf := must(d.NewStream(Patient))(t), must(d.Alloc(4096))(t)
		out := must(d.AllocHost(4096))(t)
		ev, after := must(d.NewEvent())(t), must(d.NewEvent())(t)
		err := errors.Join(
			ev.Record(e.stream),
			next.After(ev),
			next.Fill(buf.Ptr, 7, 4096),
			next.CopyOut(out, 0, buf.Ptr, 4096),
			after.Record(next),
		)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
		if ok, err := ev.Done(); ok || err != nil {
			t.Errorf("the event has happened: %v, %v", ok, err)
		}
		if out.Mem[0] != 0 {
			t.Error("the stream did not wait")
		}
		e.stop(t)
		if err := after.Wait(); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(out.Mem, bytes.Repeat([]byte{7}, 4096)) {
			t.Error("the stream did nothing")
		}
	})
}

func TestEventsTakeTheDevicesTime(t *testing.T) {
	devices(t, func(t *testing.T, d *Device) {
		from, to := must(d.NewEvent())(t), must(d.NewEvent())(t)
		s, block := must(d.NewStream(Patient))(t), must(d.AllocHost(4096))(t)
		k := must(d.Kernel("gk_probe_echo"))(t)
		const life = 30 * time.Millisecond
		err := errors.Join(
			from.Record(s),
			Launch(s, k, Grid{Blocks: 1, Threads: 32}, &echoParams{block.Ptr, block.Ptr + 128, uint64(life)}),
			to.Record(s),
			to.Wait(),
		)
		if err != nil {
			t.Fatal(err)
		}
		if took, err := to.Since(from); err != nil || took < life-time.Millisecond || took > life+2*time.Second {
			t.Errorf("took %v, %v", took, err)
		}
	})
}

func TestLaunchRefuses(t *testing.T) {
	devices(t, func(t *testing.T, d *Device) {
		s, k := must(d.NewStream(Patient))(t), must(d.Kernel("gk_probe_read"))(t)
		for _, c := range []struct {
			err  error
			says string
		}{
			{Launch(s, k, Grid{Blocks: 1, Threads: 32}, &struct{ a uint64 }{}), "8 bytes of parameters, it takes 24"},
			{Launch(s, k, Grid{Blocks: 0, Threads: 32}, &readParams{}), "launch gk_probe_read"},
			{Launch(s, k, Grid{Blocks: 1, Threads: 2048}, &readParams{}), "launch gk_probe_read"},
			{Launch(s, k, Grid{Blocks: 1, Threads: 32, Shared: 1 << 20}, &readParams{}), "1048576 bytes of shared memory"},
		} {
			if c.err == nil || !strings.Contains(c.err.Error(), c.says) {
				t.Errorf("%v does not say %q", c.err, c.says)
			}
		}
		if _, err := d.Kernel("gk_nothing"); err == nil || !strings.Contains(err.Error(), "gk_nothing") {
			t.Errorf("%v", err)
		}
		if d.Lost() != nil {
			t.Errorf("the device is lost: %v", d.Lost())
		}
	})
}

func TestLargeSharedMemoryIsAskedFor(t *testing.T) {
	devices(t, func(t *testing.T, d *Device) {
		s, k := must(d.NewStream(Patient))(t), must(d.Kernel("gk_probe_read"))(t)
		sum := must(d.AllocHost(4096))(t)
		err := errors.Join(
			Launch(s, k, Grid{Blocks: 1, Threads: 32, Shared: 100 << 10}, &readParams{sum.Ptr + 1024, 16, sum.Ptr}),
			s.Wait(),
		)
		if err != nil {
			t.Error(err)
		}
		few, err := k.Resident(256, 100<<10)
		if err != nil {
			t.Fatal(err)
		}
		many, err := k.Resident(256, 0)
		if err != nil {
			t.Fatal(err)
		}
		sms := d.Info().SMs
		if few != sms*(d.Info().SharedSM/(101<<10)) || many <= few || many > sms*8 {
			t.Errorf("%d and %d blocks on %d multiprocessors", few, many, sms)
		}
	})
}

func TestPrioritiesReachTheDriver(t *testing.T) {
	d, drv := openFake(t)
	patient, urgent := drv.Calls("priority 0"), drv.Calls("priority -5")
	must(d.NewStream(Urgent))(t)
	if n := drv.Calls("priority -5"); n != urgent+1 {
		t.Errorf("%d urgent streams", n-urgent)
	}
	must(d.NewStream(Patient))(t)
	if n := drv.Calls("priority 0"); n != patient+1 {
		t.Errorf("%d patient streams", n-patient)
	}
}
