/**
 * Owns the shape of a program's declared graph: plain data, kept beside the program and only where its runtime reports
 * one. Everything here is what a runtime said; the policies never need it.
 *
 * Terminology
 *   Node     a step of a program: LLM (a call of ours), TOOL, CODE, HUMAN (done elsewhere, ended by report) or JOIN
 *   Edge     a dependency of a node on a parent, of data or of control; READY asks for both alike
 *   Join     a node that commits by a stated rule over its parents; every other node needs all of them
 *   Branch   a parent of a join, with whatever is open above it and serves nothing else
 */
import type { CallId, NodeId, ThreadId } from '../ids.ts'
import type { Us } from '../units.ts'

export type NodeKind = 'LLM' | 'TOOL' | 'CODE' | 'HUMAN' | 'JOIN'

export interface Edge {
  readonly from: NodeId
  readonly kind: 'data' | 'control'
}

type JoinNeed =
  | { readonly kind: 'all' }
  | { readonly kind: 'any' }
  | { readonly kind: 'partial'; readonly atLeast: number }

export interface JoinRule {
  readonly need: JoinNeed
  /** What becomes of branches that are still open when the join is decided: it has fired, or can no longer fire. */
  readonly siblings: 'cancel' | 'continue'
}

export type NodeStage =
  | { readonly kind: 'open' }
  | { readonly kind: 'committed'; readonly atUs: Us }
  | { readonly kind: 'failed'; readonly atUs: Us; readonly why: string }
  | { readonly kind: 'cancelled'; readonly atUs: Us; readonly why: string }

export interface GraphNode {
  /** As its runtime names it; unique in its program. */
  readonly id: NodeId
  readonly kind: NodeKind
  /** Where it runs, as far as is known. */
  thread: ThreadId | null
  /** Fixed when it is declared; only an open join may get more. */
  parents: readonly Edge[]
  children: NodeId[]
  /** Of a JOIN; null for every other kind. */
  readonly join: JoinRule | null
  /** How much service it is said to take; null where nobody says. */
  readonly serviceUs: Us | null
  /** The call that is this node; a node may be declared before its call arrives. */
  call: CallId | null
  stage: NodeStage
  /** Of its parents: how many have committed, and how many have ended without. */
  parentsCommitted: number
  parentsLost: number
  /** Service that is said to follow it on the longest way to the end of what is known; unstated nodes count nothing. */
  afterUs: Us
}

export interface Graph {
  readonly nodes: Map<NodeId, GraphNode>
  edges: number
  /** Nodes that are open. */
  open: number
  /** Whether any node says how much service it takes; without, nothing follows anything. */
  stated: boolean
}

/** A node as a fact carries it. */
export interface DeclaredNode {
  readonly node: NodeId
  readonly of: NodeKind
  readonly thread: ThreadId | null
  readonly parents: readonly Edge[]
  readonly join: JoinRule | null
  readonly serviceUs: Us | null
  /** Set where a call that came without a node is named as one. */
  readonly call: CallId | null
}
