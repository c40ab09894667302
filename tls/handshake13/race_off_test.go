//go:build !race

package handshake13

const raceEnabled = false
