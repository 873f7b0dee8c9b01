"""Pictures of captured graphs as SVG, from their records alone: without torch, Graphviz or anything installed."""

from inductor_debug.stages.graph_pictures.picture import draw_graph

__all__ = ["draw_graph"]
