"""Sparse networks that train as well as the whole one."""

from vademecum.generalization.tickets.pruning import LotteryTicket, lottery_ticket

__all__ = ["LotteryTicket", "lottery_ticket"]
