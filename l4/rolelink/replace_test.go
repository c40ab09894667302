package rolelink

import (
	"context"
	"testing"
	"time"

	"github.com/millrace/millrace/l4/role"
)

// A process replaces another one at the active end, and fails to: the peer hears one gateway, and stays the standby.
func TestARunnerThatIsReplaced(t *testing.T) {
	a, b := start(t, 0, 'k'), start(t, 1, 'k')
	await(t, a, role.Active)
	await(t, b, role.Standby)
	changes := b.Status().Changes
	files, err := a.Files()
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	saved := a.Suspend()
	if a.answers.Load() != 0 {
		t.Error("a suspended one answers")
	}
	cfg := a.cfg
	cfg.Inherited = &Inherited{saved, files}
	next := &end{}
	if next.Runner, err = Open(cfg); err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		f.Close()
	}
	ctx, stop := context.WithCancel(t.Context())
	next.done.Go(func() { next.Run(ctx) })
	heard := func(r *Runner, why string) {
		t.Helper()
		sent := r.received.Load()
		for end := time.Now().Add(time.Minute); r.received.Load() < sent+5; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: %+v", why, r.Status())
			}
		}
	}
	received := a.received.Load()
	heard(next.Runner, "the new process hears nothing")
	heard(b.Runner, "the peer hears nothing")
	if next.State() != role.Active || b.State() != role.Standby || b.Status().Changes != changes || a.received.Load() > received+1 {
		t.Errorf("%v and %v, %d changes, %d messages to the old process", next.State(), b.State(), b.Status().Changes-changes, a.received.Load()-received)
	}
	next.Leaves()
	stop()
	next.done.Wait()
	a.Resume()
	heard(a.Runner, "the old process hears nothing")
	await(t, a, role.Active)
	if b.State() != role.Standby || b.Status().Changes != changes {
		t.Errorf("%v after %d changes", b.State(), b.Status().Changes-changes)
	}
	a.Resume() // again, without effect
	b.StreamChanged()
	heard(b.Runner, "the peer hears nothing in the end")
}
