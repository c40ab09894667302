package health

import (
	"context"
	"testing"
)

func TestAPlaceGoesToTheFirstThatStillWantsIt(t *testing.T) {
	waiting := func() *task {
		t := &task{}
		t.ctx, t.stop = context.WithCancel(context.Background())
		return t
	}
	l := limiter{limit: 2}
	a, b, stopped, c, d := waiting(), waiting(), waiting(), waiting(), waiting()
	if !l.enter(a) || !l.enter(b) || l.enter(stopped) || l.enter(c) || l.enter(d) {
		t.Error("a limiter of two places has not two")
	}
	stopped.stop()
	if got := l.leave(); got != c {
		t.Errorf("the place went to %p, not to %p, which was the first", got, c)
	}
	if l.leave() != d || l.leave() != nil || l.leave() != nil || l.running != 0 || !l.enter(a) {
		t.Errorf("at the end %+v", l)
	}
}
