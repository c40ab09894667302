// Package clock holds the one notion of time below the sockets: Time, nanoseconds on a monotonic
// clock whose zero is arbitrary, and Wheel, the timers that run on it.
//
// The package reads no clock. Time comes in as an argument (Input(now, ...), Rx(now, ...)), so a
// whole stack runs in virtual time when a test passes numbers; stack.Now reads the real one.
package clock

import "time"

// Time is a point on a monotonic clock, in nanoseconds. Only differences mean anything.
type Time int64

// Never is later than every time that a timer can have.
const Never = Time(1<<63 - 1)

// Add returns t + d.
func (t Time) Add(d time.Duration) Time { return t + Time(d) }

// Sub returns t - u.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t - u) }

// Before reports whether t is earlier than u.
func (t Time) Before(u Time) bool { return t < u }
