//go:build !race

package http3_test

const raceEnabled = false
