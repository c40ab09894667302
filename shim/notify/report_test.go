package notify

import (
	"testing"
	"testing/synctest"
	"time"
)

// What has been reported is written before the process ends, unless nobody reads it.
func TestReportsAreWrittenBeforeTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for takes, want := range map[time.Duration]time.Duration{
			0:                         0,
			time.Second:               time.Second,
			finishTime + time.Second:  finishTime,
			10 * (finishTime + 1_000): finishTime,
		} {
			var r reports
			r.writing.Go(func() { time.Sleep(takes) })
			begin := time.Now()
			r.finish()
			if got := time.Since(begin); got != want {
				t.Errorf("a line that takes %v is waited for %v, want %v", takes, got, want)
			}
			r.writing.Wait()
		}
	})
}
