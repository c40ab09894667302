// Package layers has no code: its tests hold the import policy of the tree.
package layers
