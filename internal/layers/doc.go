// Package layers has no code: its tests hold the import policy of the house.
package layers
