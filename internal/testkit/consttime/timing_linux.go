package consttime

import (
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// TimingEnv names the variable with the number of measurements. Timing skips without it: it takes minutes.
const TimingEnv = "MILLRACE_TIMING"

// Timing fails the test if the CPU time of run depends on the class that prepare is called with: 0 is one secret, always the
// same, and 1 are others. It alternates them at random.
func Timing(t *testing.T, prepare func(class int), run func()) {
	t.Helper()
	n, err := strconv.Atoi(os.Getenv(TimingEnv))
	if err != nil {
		t.Skip(TimingEnv + " is not set to a number of measurements: `make timing` does")
	}
	runtime.LockOSThread() // the time is that of the thread
	defer runtime.UnlockOSThread()
	var s [2]sample
	for i := range n + n/10 {
		class := rand.IntN(2)
		prepare(class)
		start := threadTime()
		run()
		if cost := threadTime() - start; i >= n/10 { // the first ones warm caches up
			s[class] = append(s[class], float64(cost))
		}
	}
	worst := worstT(s)
	t.Logf("%d measurements, median %.0f ns, t is %.2f", n, s[0].quantile(0.5), worst)
	if worst > limitT {
		t.Errorf("the CPU time depends on the secret: t is %.1f, above %d", worst, limitT)
	}
}

// threadTime returns the CPU time of this thread in ns: other processes do not count, but for the caches that they share.
func threadTime() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}
